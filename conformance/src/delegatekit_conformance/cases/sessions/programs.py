"""The programs of the machines: each is made with the weights of a seed, so that there are others of the same shape.

A builder uses nothing but torch: its text is part of the script that a report shows. Inputs have hundreds of elements,
so that the one in the middle is far from both ends, and every element of an input changes a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from .pairs import Build, Built


@dataclass(frozen=True)
class Kind:
    """One program, without the seed of its weights."""

    name: str
    build: Build
    #: "stateful", "dynamic", "weights", "methods": traits by which machines select their programs.
    traits: frozenset[str]


KINDS: dict[str, Kind] = {}


def kind(name: str, *traits: str) -> Callable[[Build], Build]:
    """Register a builder."""

    def register(build: Build) -> Build:
        KINDS[name] = Kind(name, build, frozenset(traits))
        return build

    return register


@kind("elementwise", "weights")
def elementwise(seed: int) -> Built:
    """Element by element over many elements, with constants."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = nn.Buffer(torch.randn(96)), nn.Buffer(torch.randn(1, 96))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + (x + self.shift).relu()

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("normal", 96, 96)]}


@kind("layers", "weights")
def layers(seed: int) -> Built:
    """Two linear layers."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(64, 48), nn.Tanh(), nn.Linear(48, 64))
    return {"forward": module}, {"forward": [("normal", 12, 64)]}


@kind("image", "weights")
def image(seed: int) -> Built:
    """A convolution and pooling."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2))
    return {"forward": module}, {"forward": [("normal", 1, 3, 20, 20)]}


@kind("methods-of-one-shape", "weights", "methods")
def methods_of_one_shape(seed: int) -> Built:
    """Two methods with weights of the same shapes."""
    torch.manual_seed(seed)
    methods = {name: nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for name in ("encode", "decode")}
    return methods, {name: [("normal", 16, 32)] for name in methods}


@kind("rows", "dynamic", "weights")
def rows(seed: int) -> Built:
    """Linear layers over rows whose number changes."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(40, 24), nn.Tanh(), nn.Linear(24, 40))
    return {"forward": module}, {"forward": [("normal", "n", 40)]}


@kind("running-sum", "stateful", "weights")
def running_sum(seed: int) -> Built:
    """A buffer that every call halves and adds to."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Buffer(torch.randn(16, 24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.mul_(0.5).add_(x)
            return self.total * 2 + x

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("normal", 16, 24)]}


@kind("quantized-arithmetic", "quantized", "weights")
def quantized_arithmetic(seed: int) -> Built:
    """int8 numbers added to constants; every result is a whole number of steps."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Buffer(torch.randint(-3, 4, (1, 24, 32), dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = q.dequantize_per_tensor.default(x, 0.125, 2, -128, 127, torch.int8)
            shift = q.dequantize_per_tensor.default(self.shift, 0.0625, 0, -128, 127, torch.int8)
            result: torch.Tensor = q.quantize_per_tensor.default(wide + shift, 0.0625, -3, -128, 127, torch.int8)
            return result

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("steps", 1, 24, 32)]}


@kind("matrices")
def matrices(seed: int) -> Built:
    """A product of two inputs, without weights: the program is the same for all seeds."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x @ y, (x + x).softmax(1)

    return {"forward": Model()}, {"forward": [("normal", 24, 32), ("normal", 32, 20)]}


@kind("methods-of-shared-layers", "weights", "methods")
def methods_of_shared_layers(seed: int) -> Built:
    """Two methods that have a layer in common, and one each of the same shape."""

    class Model(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body, self.head = body, nn.Linear(24, 24)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.head(torch.tanh(self.body(x)))
            return y

    torch.manual_seed(seed)
    body = nn.Linear(40, 24)
    return {"left": Model(body), "right": Model(body)}, {name: [("normal", 16, 40)] for name in ("left", "right")}


@kind("rows-and-state", "dynamic", "stateful", "weights")
def rows_and_state(seed: int) -> Built:
    """A mean that is kept, of rows whose number changes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Buffer(torch.randn(40))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.mul_(0.5).add_(x.sum(0))
            return x + self.mean

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("normal", "n", 40)]}


@kind("quantized-layer", "quantized", "weights")
def quantized_layer(seed: int) -> Built:
    """A linear layer of int8 weights; every result is a whole number of steps."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-2, 3, (24, 32), dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = q.dequantize_per_tensor.default(x, 0.125, 1, -128, 127, torch.int8)
            weight = q.dequantize_per_tensor.default(self.weight, 0.25, 0, -128, 127, torch.int8)
            sums = nn.functional.linear(wide, weight)
            result: torch.Tensor = q.quantize_per_tensor.default(sums, 0.03125, 5, -128, 127, torch.int8)
            return result

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("steps", 16, 32)]}


@kind("embedding", "weights")
def embedding(seed: int) -> Built:
    """Rows of a table, chosen by indices, and a layer."""
    torch.manual_seed(seed)
    return {"forward": nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 8))}, {"forward": [(50, 4, 40)]}


@kind("methods-of-shared-state", "stateful", "methods", "weights")
def methods_of_shared_state(seed: int) -> Built:
    """A method that adds to a buffer, and one that reads it and keeps a buffer of its own."""

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Buffer(torch.randn(8, 32))

    class Add(nn.Module):
        def __init__(self, body: Body) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.body.total.mul_(0.5).add_(x)
            return self.body.total + x

    class Read(nn.Module):
        def __init__(self, body: Body) -> None:
            super().__init__()
            self.body = body
            self.calls = nn.Buffer(torch.zeros(()))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.calls.add_(1)
            self.body.total.mul_(0.75)
            return x * self.body.total, self.calls + 0

    torch.manual_seed(seed)
    body = Body()
    return {"add": Add(body), "read": Read(body)}, {name: [("normal", 8, 32)] for name in ("add", "read")}


@kind("attention-over-rows", "dynamic")
def attention_over_rows(seed: int) -> Built:
    """Rows that are mixed with one another: the size that changes occurs twice in a value."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x @ x.T * 0.125).softmax(-1) @ x

    return {"forward": Model()}, {"forward": [("normal", "n", 32)]}


@kind("cache", "stateful")
def cache(seed: int) -> Built:
    """A cache that is written at the place given by an input, and read as a whole."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.keys = nn.Buffer(torch.zeros(1, 2, 8, 16))

        def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            self.keys.index_copy_(2, place, x)
            return (self.keys * 2 + x).tanh()

    return {"forward": Model()}, {"forward": [("normal", 1, 2, 1, 16), (8, 1)]}


@kind("quantized-image", "quantized", "weights")
def quantized_image(seed: int) -> Built:
    """A convolution of int8 weights; every result is a whole number of steps."""
    import torch.ao.quantization.fx._decomposed

    q = torch.ops.quantized_decomposed

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Buffer(torch.randint(-2, 3, (8, 3, 3, 3), dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = q.dequantize_per_tensor.default(x, 0.125, 0, -128, 127, torch.int8)
            weight = q.dequantize_per_tensor.default(self.weight, 0.25, 0, -128, 127, torch.int8)
            sums = nn.functional.conv2d(wide, weight, None, 1, 1)
            result: torch.Tensor = q.quantize_per_tensor.default(sums, 0.03125, -5, -128, 127, torch.int8)
            return result

    torch.manual_seed(seed)
    return {"forward": Model()}, {"forward": [("steps", 1, 3, 14, 14)]}


@kind("counter", "stateful")
def counter(seed: int) -> Built:
    """An integer that counts calls."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = nn.Buffer(torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            self.count.add_(1)
            return x * 2 + x.abs(), self.count + 0

    return {"forward": Model()}, {"forward": [("normal", 20, 30)]}


@kind("methods-of-own-state", "stateful", "methods", "weights")
def methods_of_own_state(seed: int) -> Built:
    """Two methods with factors in common; each keeps a buffer of its own, which begins with zeros."""

    class Model(nn.Module):
        def __init__(self, name: str, factors: nn.Parameter) -> None:
            super().__init__()
            self.name, self.factors = name, factors
            self.register_buffer(name, torch.zeros(16, 24))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            total = self.get_buffer(self.name)
            total.mul_(0.5).add_(x)
            return total * self.factors + x

    torch.manual_seed(seed)
    factors = nn.Parameter(torch.randn(16, 24))
    names = ("one", "two")
    return {name: Model(f"{name}_total", factors) for name in names}, {name: [("normal", 16, 24)] for name in names}
