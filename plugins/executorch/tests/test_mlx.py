"""ExecuTorch's MLX backend, whose generated code the wheel lacks: written on the way, and nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit_api import LoweringError
from delegatekit_executorch_backends import targets
from delegatekit_executorch_backends.compiler.loading import quietly
from delegatekit_executorch_backends.compiler.partitioners import stock_compiler
from delegatekit_toolkit.processes import search_path

NAME = "executorch.mlx"
SYSTEM = targets.SYSTEMS[NAME]

#: Lowers a linear layer, and prints the delegate's id.
_LOWERS = """
import torch, delegatekit
program = delegatekit.lower(torch.nn.Linear(4, 3), (torch.ones(2, 4),), backends=["executorch.mlx"])
print(len(program.methods["forward"].delegates))
"""


@pytest.fixture(autouse=True)
def _compiles() -> None:
    available = get_backend(NAME).compiler_availability()
    if not available.available:
        pytest.skip(available.reason)


def _wheel() -> Path:
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def _in_process(code: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with this folder for temporary files."""
    environment = search_path() | {"TMPDIR": str(temporary)}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_generated_code_is_used_and_nothing_of_it_stays(tmp_path: Path) -> None:
    def files() -> set[Path]:
        return {path for path in (_wheel() / "backends" / "mlx").rglob("*") if "__pycache__" not in path.parts}

    before = files()
    done = _in_process(_LOWERS, tmp_path)
    assert done.returncode == 0 and done.stdout == "1\n", done.stderr
    assert done.stderr == ""
    assert files() == before
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".py"]


def test_a_generator_that_fails_is_told_with_its_words_and_another_try_is_right(tmp_path: Path) -> None:
    if targets.stock_file(targets.MLX_CODE) is not None:
        pytest.skip("the installed wheel has the code")
    broken = tmp_path / "flatc"
    broken.write_text("#!/bin/sh\necho no such schema >&2\nexit 3\n")
    broken.chmod(0o755)
    code = f"""
from pathlib import Path
import torch, delegatekit, delegatekit_api
from delegatekit_executorch_backends.compiler import generating
real = generating.stock_file
generating.stock_file = lambda path: Path({str(broken)!r}) if path == generating.MLX_FLATC else real(path)
try:
    delegatekit.lower(torch.nn.ReLU(), (torch.ones(2),), backends=["executorch.mlx"])
except delegatekit_api.DelegateKitError as error:
    print("told:", "no such schema" in str(error) and "generator" in str(error))
generating.stock_file = real
{_LOWERS}"""
    done = _in_process(code, tmp_path)
    assert done.stdout == "told: True\n1\n", done.stderr


def test_without_flatc_the_reason_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {targets.MLX_CODE, targets.MLX_FLATC}
    real = targets.stock_file
    monkeypatch.setattr(targets, "stock_file", lambda path: None if path in missing else real(path))
    available = get_backend(NAME).compiler_availability()
    assert not available.available and "flatc" in available.reason
    with pytest.raises(LoweringError, match="flatc"):
        delegatekit.lower(torch.nn.ReLU(), (torch.ones(2),), backends=[NAME])


def test_a_refusal_has_the_compilers_reason() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear").double()

    said = delegatekit.explain(Model(), (torch.ones(1, 2, 3, 4),), backends=[NAME])
    reasons = {row.operator: row.reasons.get(NAME, "") for row in said.rows}
    assert "no handler for" in reasons["aten.upsample_bilinear2d.vec"]
    assert "ValueError" not in reasons["aten._to_copy.default"] and " at 0x" not in reasons["aten._to_copy.default"]
    assert "failed for" in reasons["aten._to_copy.default"] and "float64" in reasons["aten._to_copy.default"]


class Picked(torch.nn.Module):
    """Rows and columns picked by a tensor, of a linear layer's result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """(B, 4), (B,) -> (B,)."""
        found: torch.Tensor = self.linear(x)[places, places] * 2
        return found


def test_a_size_that_changes_is_not_fixed_by_the_compiler() -> None:
    """Its handler of `aten.index` asks for the numbers of the result's sizes, which would fix them at the example's."""
    batch = torch.export.Dim("batch", min=1, max=8)
    exported = torch.export.export(
        Picked(), (torch.randn(3, 4), torch.arange(3)), dynamic_shapes=({0: batch}, {0: batch})
    )
    lowered = delegatekit.lower(exported, backends=[NAME])
    (method,) = lowered.methods.values()
    assert {str(node.target) for node in method.plan.fallback} >= {"aten.index.Tensor"}
    assert method.delegates
    (size, _) = next(node for node in exported.graph.nodes if node.name == "x").meta["val"].shape
    assert str(size).startswith("s")


def test_pools_whose_sizes_change_are_left_and_their_neighbours_taken() -> None:
    """Its partitioner takes them, and its compiler would write the example's sizes."""
    half = torch.export.Dim("half", min=2, max=8)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.MaxPool2d(2), torch.nn.ReLU())
    image = torch.randn(1, 2, 8, 4)
    exported = torch.export.export(model.eval(), (image,), dynamic_shapes=({2: 2 * half},))
    (method,) = delegatekit.lower(exported, backends=[NAME]).methods.values()
    pool = next(node for node in method.plan.fallback if "max_pool2d" in str(node.target))
    assert "fix the sizes" in method.plan.verdicts[pool][NAME].reason
    assert len(method.delegates) == 2
    (fixed,) = delegatekit.lower(model, (image,), backends=[NAME]).methods.values()
    assert len(fixed.delegates) == 1 and not fixed.plan.fallback


class Attention(torch.nn.Module):
    """Attention of three heads with its norm and a layer that enlarges."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(12)
        self.project, self.out = torch.nn.Linear(12, 36), torch.nn.Linear(12, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, T, 12) -> (B, T, 24)."""
        batch, length, _ = x.shape
        query, key, value = self.project(self.norm(x)).view(batch, length, 3, 3, 4).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value)
        grown: torch.Tensor = torch.nn.functional.gelu(self.out(mixed.transpose(1, 2).reshape(batch, length, 12)))
        return grown


def _convolutions() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, padding=1),
        torch.nn.BatchNorm2d(6),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(6, 8, 3, groups=2),
    )


NETWORKS: dict[str, tuple[torch.nn.Module, torch.Tensor]] = {
    "attention": (Attention(), torch.randn(2, 5, 12)),
    "convolutions": (_convolutions(), torch.randn(1, 3, 8, 8)),
}
#: How often a kind of node is in the delegate of ExecuTorch's own pipeline, and how often in ours. Ours takes the parts
#: of a tensor by their places, ExecuTorch's by ranges; ours folds a batch norm into the convolution before it,
#: ExecuTorch's computes it.
DIFFERENT = {
    "attention": {"Take": (0, 3), "Slice": (3, 0), "Squeeze": (3, 0)},
    "convolutions": {
        "Reshape": (7, 3),
        "Add": (4, 3),
        "Multiply": (2, 1),
        "Subtract": (1, 0),
        "Rsqrt": (1, 0),
        "IdCopy": (2, 1),
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_delegates_have_the_nodes_of_executorchs_own_pipeline(name: str) -> None:
    model, x = NETWORKS[name]
    model.eval()
    from executorch.exir import to_edge_transform_and_lower

    partitioner = stock_compiler(SYSTEM, SYSTEM.options()).partitioner
    with quietly():
        exported = torch.export.export(model, (x,))
        theirs = to_edge_transform_and_lower(exported, partitioner=[partitioner]).to_executorch().buffer
    ours = delegatekit.lower(model, (x,), backends=[NAME])
    assert not ours.methods["forward"].plan.fallback
    before, after = _nodes(theirs), _nodes(bytes(ours.buffer))
    different = {kind: (before[kind], after[kind]) for kind in before | after if before[kind] != after[kind]}
    assert different == DIFFERENT[name]


def _nodes(file: bytes) -> Counter[str]:
    """The kinds of nodes in a file's one delegate, as ExecuTorch's inspector reads them, and how many there are."""
    from executorch.backends.mlx.pte_inspector import extract_delegate_payload, parse_mlx_payload

    found: Any = parse_mlx_payload(extract_delegate_payload(file, "MLXBackend"))
    chains = found["graph"]["instruction_chains"]
    return Counter(node["op_name"].removesuffix("Node") for chain in chains for node in chain["instructions"])
