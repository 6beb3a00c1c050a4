"""Interoperability: the stock runtime runs our files, we read stock's; nothing is held in memory twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch

import delegatekit
from delegatekit.pte import PteImage, read, schema, to_bytes, write
from delegatekit.pte.validation import validate
from delegatekit_api import FormatError, LoweringError, NamedData

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


def run_stock(data: bytes, *inputs: Any) -> Any:
    program = _C._load_program_from_buffer(data)
    return program.load_method("forward")(inputs)


def test_a_hand_built_program_runs_in_the_stock_runtime() -> None:
    result = run_stock(handmade.add_program(), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert result[0].tolist() == [11.0, 22.0, 33.0, 44.0, 55.0]


def test_mutable_state_starts_at_its_initial_value_and_persists_in_the_stock_runtime() -> None:
    state = handmade.tensor([5], 64, constant=1)
    values = [
        handmade.tensor([5], 0),
        state,
        schema.EValue(schema.Int(1)),
        schema.EValue(schema.Bool(False)),
        handmade.tensor([5], 128),
    ]
    calls = [schema.KernelCall(0, [1, 0, 2, 4, 4]), schema.KernelCall(1, [1, 4, 3, 1])]
    names = [schema.Operator("aten::add", "out"), schema.Operator("aten::copy_", "")]
    plan = handmade.plan(values, [0], [4], calls, operators=names, non_const_buffer_sizes=[0, 192])
    data = to_bytes(PteImage((plan,), mutable_state=(torch.full((5,), 100.0),)))
    validate(read(data))
    method = _C._load_program_from_buffer(data).load_method("forward")
    assert [method((torch.ones(5),))[0][0].item() for _ in range(3)] == [101.0, 102.0, 103.0]


class Counters(torch.nn.Module):
    """Buffers that begin alike, and are updated by themselves."""

    def __init__(self) -> None:
        super().__init__()
        for number in range(4):
            self.register_buffer(f"count{number}", torch.full((512,), 7.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, buffer in enumerate(self.buffers()):
            buffer.add_(x * number)
        return torch.stack(list(self.buffers())).sum(1)


def test_equal_initial_values_are_in_the_file_once_and_updated_apart() -> None:
    data = delegatekit.lower(Counters(), (torch.ones(512),), backends=[]).buffer
    file = read(data)
    (table,) = file.program.mutable_data_segments or []
    assert table.offsets == [0, 0, 0, 0, 0]
    assert len(file.segment(table.segment_index, "initial state")) == 4 * 512
    stock = _C._load_program_from_buffer(data).load_method("forward")
    ours = delegatekit.load(data)["forward"]
    eager = Counters()
    for _ in range(3):
        x = torch.randint(-9, 9, (512,)).float()  # sums are exact
        wanted = eager(x)
        assert torch.equal(stock((x,))[0], wanted)
        assert torch.equal(ours(x), wanted)
    ours.reset()
    assert torch.equal(ours(torch.zeros(512)), Counters()(torch.zeros(512)))


STOCK_FILE = """
import sys, torch
from executorch.exir import to_edge
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
program = torch.export.export(module, (torch.ones(2, 4),))
open(sys.argv[1] + "/linear.pte", "wb").write(to_edge(program).to_executorch().buffer)
"""


@pytest.fixture(scope="module")
def stock_file(once: Any, stock_process: Any) -> bytes:
    """A file written by ExecuTorch's own lowering, without delegates."""
    folder: Path = once("stock_writer", lambda folder: stock_process.run(STOCK_FILE, folder))
    return (folder / "linear.pte").read_bytes()


def test_a_file_of_the_stock_writer_reads_and_runs_equal_after_rewriting(stock_file: bytes) -> None:
    file = read(stock_file)
    validate(file)
    plan = file.program.execution_plan[0]  # type: ignore[index]
    tensors = [value.val for value in plan.values or () if isinstance(value.val, schema.Tensor)]
    sizes = {t.data_buffer_idx: t.nbytes for t in tensors if t.data_buffer_idx}
    constants = tuple(file.constant(index, sizes[index]) for index in sorted(sizes))
    rewritten = to_bytes(PteImage((plan,), constants=constants))
    x = torch.randn(2, 4)
    assert torch.equal(run_stock(rewritten, x)[0], run_stock(stock_file, x)[0])


def test_the_python_engine_runs_a_file_of_the_stock_writer(stock_file: bytes) -> None:
    import delegatekit

    x = torch.randn(2, 4)
    result = delegatekit.load(stock_file)["forward"](x)
    torch.testing.assert_close(result, run_stock(stock_file, x)[0])


def test_equal_content_is_stored_once() -> None:
    plan = handmade.plan([handmade.tensor([1024], constant=i + 1) for i in range(3)], [], [0], [])
    first, second = torch.ones(1024), torch.ones(1024)
    one = to_bytes(PteImage((plan,), constants=(first, first, second)))
    assert len(one) < 2 * 4096 + 1024
    assert [len(segment) for segment in read(one).segments] == [4096]


def test_named_data_of_one_key_must_be_one_content() -> None:
    plan = handmade.plan([], [], [], [])
    named = (NamedData("key", b"one"), NamedData("key", b"two"))
    with pytest.raises(LoweringError, match="named data key"):
        to_bytes(PteImage((plan,), named_data=named))


def test_named_data_is_aligned_as_asked() -> None:
    plan = handmade.plan([], [], [], [])
    named = (NamedData("a", b"x" * 5), NamedData("b", b"y" * 5, alignment=4096))
    file = read(to_bytes(PteImage((plan,), named_data=named)))
    offsets = {data.key: file.program.segments[data.segment_index].offset for data in file.program.named_data or ()}  # type: ignore[index]
    assert offsets["b"] % 4096 == 0
    assert bytes(file.named_data["a"]) == b"xxxxx"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8])
def test_constants_of_any_dtype_and_stride_keep_their_values(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype).t()
    plan = handmade.plan([handmade.tensor([1], constant=1)], [], [0], [])
    file = read(to_bytes(PteImage((plan,), constants=(tensor,))))
    size = tensor.numel() * tensor.element_size()
    assert bytes(file.constant(1, size)) == bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def test_writing_is_deterministic(tmp_path: Path) -> None:
    write(handmade.add_image(), tmp_path / "a.pte")
    assert (tmp_path / "a.pte").read_bytes() == handmade.add_program()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(b"old")

    class Failing(bytes):
        def __len__(self) -> int:
            raise RuntimeError("disk on fire")

    plan = handmade.plan([handmade.tensor([1], constant=1)], [], [0], [])
    with pytest.raises(RuntimeError, match="disk on fire"):
        write(PteImage((plan,), constants=(Failing(),)), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="folder does not exist"):
        write(handmade.add_image(), tmp_path / "none" / "a.pte")


@pytest.mark.parametrize("mebibytes", [512, pytest.param(2560, marks=pytest.mark.slow)])
def test_a_large_model_is_written_without_a_second_copy(
    mebibytes: int, grown: Callable[..., int], tmp_path: Path
) -> None:
    script = """
import sys, torch
import delegatekit
from delegatekit.pte import PteImage, schema, write

tensors = [torch.full((1 << 22,), float(i)) for i in range(int(sys.argv[1]) // 16)]
values = [
    schema.EValue(schema.Tensor(scalar_type=6, sizes=[1 << 22], dim_order=bytes(1), data_buffer_idx=i + 1))
    for i in range(len(tensors))
]
plan = schema.ExecutionPlan(name="forward", values=values, inputs=[], outputs=[], chains=[], non_const_buffer_sizes=[0])
before = peak()
write(PteImage((plan,), constants=tuple(tensors)), sys.argv[2])
"""
    path = tmp_path / "large.pte"
    assert grown(script, mebibytes, path) < 64
    assert path.stat().st_size > mebibytes << 20
    os.truncate(path, 0)
