"""A core meets a frozen plugin, in a process of its own: lowers networks with it, runs and inspects the files.

    python encounter.py make BACKEND FOLDER NETWORK...     lower the networks into FOLDER/NETWORK.pte
    python encounter.py meet BACKEND FOLDER NETWORK...     the same in memory, and with the files that FOLDER has

Both use what any release of DelegateKit has: `lower`, `load` and `inspect`. Prints JSON: what came out, or the
deviation from eager PyTorch. The weights of the networks follow from their shapes, so that they are the same in every
release of PyTorch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import conv2d, linear, max_pool2d

import delegatekit


def numbers(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """A tensor between -scale and scale, without a generator of random numbers."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count, dtype=torch.float64) * 37 % 101 / 50 - 1) * scale).to(torch.float32).reshape(shape)


class Sums(torch.nn.Module):
    """What the smallest backend can do."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x + y) * y + x


class Layers(torch.nn.Module):
    """A convolution, a product of matrices and what is usual between them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = torch.nn.Parameter(numbers(8, 3, 3, 3, scale=0.2))
        self.bias = torch.nn.Parameter(numbers(8, scale=0.1))
        self.matrix = torch.nn.Parameter(numbers(5, 8, scale=0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(conv2d(x, self.kernel, self.bias, stride=2, padding=1))
        y = max_pool2d(y, 2)
        y = linear(y.mean((2, 3)), self.matrix)
        return torch.softmax(y, 1)


class Rows(torch.nn.Module):
    """A network whose first size changes from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(numbers(6, 4, scale=0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(linear(x, self.matrix)) + 1


class Products(torch.nn.Module):
    """What a device of 8-bit integers computes exactly as quantized eager does."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = torch.nn.Parameter(numbers(6, 4, scale=0.3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(linear(x, self.matrix))


#: Network -> module, example inputs, dynamic shapes.
NETWORKS = {
    "sums": lambda: (Sums(), (numbers(2, 3), numbers(2, 3, scale=0.5)), None),
    "layers": lambda: (Layers(), (numbers(1, 3, 16, 16),), None),
    "products": lambda: (Products(), (numbers(2, 4),), None),
    "rows": lambda: (Rows(), (numbers(8, 4),), ({0: torch.export.Dim("rows", max=8)},)),
}


def network(backend: str, name: str) -> Any:
    """A network, example inputs, and which sizes change; "NAME-int8" is quantized as the backend does by default."""
    module, inputs, sizes = NETWORKS[name.removesuffix("-int8")]()
    if name.endswith("-int8"):
        return delegatekit.quantize(module.eval(), [inputs], backend=backend), inputs, sizes
    return module.eval(), inputs, sizes


def lowered(backend: str, name: str) -> Any:
    """A network as lowered to a backend."""
    module, inputs, sizes = network(backend, name)
    return delegatekit.lower(module, inputs, backends=[backend], dynamic_shapes=sizes)


def deviation(source: Any, backend: str, name: str) -> float:
    """The largest difference between a file's results and eager's, relative to the largest number there."""
    module, inputs, sizes = network(backend, name)
    run = delegatekit.load(source)["forward"]
    calls = [inputs, *([tuple(x[:3] for x in inputs)] if sizes else [])]
    found = 0.0
    for call in calls:
        wanted = module(*call).detach()
        result = run(*call)
        assert result.shape == wanted.shape, (result.shape, wanted.shape)
        found = max(found, float((result - wanted).abs().max() / wanted.abs().max()))
    return found


def told(source: Any) -> list[dict[str, Any]]:
    """What `inspect` tells of a file's delegates: the maker, and the operators inside."""
    found = delegatekit.inspect(source, operators=True)
    return [
        {
            "maker": [delegate.distribution, delegate.version, delegate.api_version],
            "operators": [operator.name for operator in delegate.insides.operators],
            "unknown": delegate.insides.unknown,
        }
        for method in found.methods
        for delegate in method.delegates
    ]


def make(backend: str, folder: Path, *names: str) -> Any:
    """Write the networks' files; returns their deviations."""
    for name in names:
        (folder / f"{name}.pte").write_bytes(lowered(backend, name).buffer)
    return {name: deviation(folder / f"{name}.pte", backend, name) for name in names}


def meet(backend: str, folder: Path, *names: str) -> Any:
    """The facts about a backend, and about each network as lowered now and as it was lowered then."""
    from delegatekit.plugins import get_backend

    info = delegatekit.backends()[backend]
    if not info.usable:
        return {"status": info.status, "reason": info.reason}
    for has in (get_backend(backend).compiler_availability(), get_backend(backend).runtime_availability()):
        if not has.available:
            return {"status": "unavailable", "reason": has.reason}
    module = sys.modules[f"delegatekit_{backend}"]
    now, then = {}, {}
    for name in names:
        program = lowered(backend, name)
        now[name] = {"deviation": deviation(program.buffer, backend, name), "delegates": told(program.buffer)}
        path = folder / f"{name}.pte"
        then[name] = {"deviation": deviation(path, backend, name), "delegates": told(path)}
    return {"status": info.status, "api": info.api_version, "file": module.__file__, "now": now, "then": then}


if __name__ == "__main__":
    step, backend, folder, *names = sys.argv[1:]
    with torch.no_grad():
        print(json.dumps({"make": make, "meet": meet}[step](backend, Path(folder), *names)))
