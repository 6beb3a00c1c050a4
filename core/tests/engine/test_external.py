"""Weights in data files: our engine and the stock runtime compute the same as with weights inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch import nn

import delegatekit as dk
from delegatekit.pte import Datum, PtdImage, PteImage, ptd_to_bytes, read_ptd, schema, to_bytes
from delegatekit.pte.ptd_schema import TensorLayout
from delegatekit_api import FormatError, LoweringError

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


class Net(nn.Module):
    """Two parameters of equal content, a folded constant, a literal tensor, and a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)
        self.register_buffer("same", self.b.bias.detach().clone())
        self.register_buffer("count", torch.full((3,), 100.0))
        self.folded = nn.Parameter(torch.randn(3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        y = self.b(torch.relu(self.a(x))) + self.same * torch.tensor([1.0, 2.0, 3.0])
        return torch.cumsum(y, 1) + (self.folded.T @ self.folded)[0] + self.count


X = torch.arange(8.0).reshape(2, 4) / 8
WEIGHTS = {"a.weight", "a.bias", "b.weight", "b.bias"}


@pytest.fixture(scope="module")
def exported() -> Any:
    return torch.export.export(Net().eval(), (X,))


def lower(exported: Any, external: Any) -> dk.LoweredProgram:
    return dk.lower(exported, backends=[], external=external)


def big(name: str, data: Any) -> bool:
    return bool(data.nbytes > 20)


@pytest.mark.parametrize("external", [True, "weights", big])
def test_both_engines_compute_with_weights_outside_what_eager_computes(
    external: Any, exported: Any, tmp_path: Path
) -> None:
    data, path = lower(exported, external).save(tmp_path / "model.pte")
    assert data.name == ("weights.ptd" if external == "weights" else "model.ptd")
    ours = dk.load(path, data=data)["forward"]
    program = _C._load_program(str(path), data_path=str(data))
    stock = program.load_method("forward")
    eager = Net().eval()
    for _ in range(2):
        expected = eager(X)
        torch.testing.assert_close(ours(X), expected)
        torch.testing.assert_close(stock((X,))[0], expected)


def test_names_are_those_of_the_module_or_made_from_the_content(exported: Any) -> None:
    (data,) = lower(exported, True).data_files.values()
    names = set(read_ptd(data))
    assert names >= WEIGHTS
    others = names - WEIGHTS
    assert len(others) == 2 and all(name.startswith("constant.float.3.") for name in others)
    # Generated again they are the same: nothing in them depends on counting or on addresses.
    (again,) = lower(torch.export.export(Net().eval(), (X,)), True).data_files.values()
    assert again == data


def test_the_initial_value_of_a_buffer_that_changes_stays_inside(exported: Any) -> None:
    program = lower(exported, True)
    assert "count" not in read_ptd(program.data_files[""])
    states = dk.pte.read(program.buffer).program.mutable_data_segments
    assert states is not None and len(states) == 1


def test_the_predicate_chooses_what_goes_where_and_is_asked_once(exported: Any, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def choose(name: str, data: Any) -> Any:
        asked.append((name, data.nbytes))
        return {"a.weight": True, "a.bias": "biases", "b.bias": "biases.ptd"}.get(name)

    program = lower(exported, choose)
    assert len(asked) == len({name for name, _ in asked}) == 6
    assert ("a.weight", 128) in asked
    assert {name: set(read_ptd(data)) for name, data in program.data_files.items()} == {
        "": {"a.weight"},
        "biases": {"a.bias", "b.bias"},
    }
    *files, path = program.save(tmp_path / "model.pte")
    assert {file.name for file in files} == {"model.ptd", "biases.ptd"}
    torch.testing.assert_close(dk.load(path, data=files)["forward"](X), Net().eval()(X))
    torch.testing.assert_close(
        dk.load(program.buffer, data=list(program.data_files.values()))["forward"](X), Net().eval()(X)
    )


def test_any_dtype_goes_outside(tmp_path: Path) -> None:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scalar", torch.tensor(2.0))
            self.register_buffer("index", torch.tensor([1, 0]))
            self.register_buffer("mask", torch.tensor([True, False, True]))
            self.register_buffer("small", torch.ones(3, dtype=torch.float16))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * self.scalar
            return y, x[self.index], torch.where(self.mask, x, y), x.half() + self.small

    x = torch.randn(2, 3)
    data, path = dk.lower(Kinds().eval(), (x,), backends=[], external=True).save(tmp_path / "model.pte")
    assert {key: len(stored.data) for key, stored in read_ptd(data).items()} == {
        "scalar": 4,
        "index": 16,
        "mask": 3,
        "small": 6,
    }
    stock = _C._load_program(str(path), data_path=str(data)).load_method("forward")((x,))
    ours = dk.load(path, data=data)["forward"](x)
    for mine, theirs, expected in zip(ours, stock, Kinds()(x), strict=True):
        assert torch.equal(mine, expected) and torch.equal(theirs, expected)


def test_the_report_says_how_much_is_in_each_data_file(exported: Any) -> None:
    report = dk.report(lower(exported, lambda name, data: {"a.weight": True, "b.bias": "small"}.get(name)))
    assert report.data_files == {"": 128, "small": 12}
    assert "data file small.ptd: 12 B" in str(report)


def test_the_stock_binding_takes_only_one_data_file(exported: Any, tmp_path: Path) -> None:
    """Our engine takes several; the stock Python binding needs one."""
    first, _, path = lower(exported, lambda name, data: name.split(".")[0]).save(tmp_path / "model.pte")[-3:]
    program = _C._load_program(str(path), data_path=str(first))
    with pytest.raises(RuntimeError, match="0x:20"):
        program.load_method("forward")


def test_nothing_outside_is_the_file_as_before(exported: Any, tmp_path: Path) -> None:
    never = lower(exported, lambda name, data: False)
    assert never.data_files == {} and never.buffer == lower(exported, False).buffer
    assert never.save(tmp_path / "model.pte") == (tmp_path / "model.pte",)


def test_methods_share_a_weight_that_is_outside(tmp_path: Path) -> None:
    layer = nn.Linear(16, 16)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    class Once(Twice):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    x = torch.randn(2, 16)
    programs = {name: torch.export.export(module.eval(), (x,)) for name, module in (("one", Once()), ("two", Twice()))}
    data, path = dk.lower(programs, backends=[], external=True).save(tmp_path / "model.pte")
    assert {key: len(stored.data) for key, stored in read_ptd(data).items()} == {
        "layer.weight": 1024,
        "layer.bias": 64,
    }
    stock = _C._load_program(str(path), data_path=str(data))
    for name, program in programs.items():
        torch.testing.assert_close(dk.load(path, data=data)[name](x), program.module()(x))
        torch.testing.assert_close(stock.load_method(name)((x,))[0], program.module()(x))


def test_one_name_for_different_tensors_is_refused_when_lowering() -> None:
    programs = {name: torch.export.export(nn.Linear(3, 3).eval(), (torch.ones(1, 3),)) for name in ("one", "two")}
    with pytest.raises(LoweringError, match="external data weight: two different tensors have this name") as caught:
        dk.lower(programs, backends=[], external=True)
    assert "keep this name" in str(caught.value.hint)
    program = dk.lower(programs, backends=[], external=lambda name, data: False)
    assert program.data_files == {}


@pytest.mark.parametrize("answer", ["", "a/b", "../a", ".hidden", 7, ["a"]])
def test_an_answer_that_is_no_name_of_a_file_is_refused(answer: Any, exported: Any) -> None:
    with pytest.raises(LoweringError, match=r"external data a\.weight"):
        lower(exported, lambda name, data: answer)


def test_a_constant_stays_in_the_mapped_file(grown: Callable[..., int], tmp_path: Path) -> None:
    """64 MiB of weights outside: loading and making the method takes a small part of that."""
    module = nn.Linear(4096, 4096).eval()
    data, path = dk.lower(module, (torch.ones(1, 4096),), backends=[], external=True).save(tmp_path / "large.pte")
    script = (
        "import sys, torch, delegatekit as dk\n"
        "dk.load(sys.argv[3])['forward']\n"  # the imports of a first method
        "before = peak()\n"
        "method = dk.load(sys.argv[1], data=sys.argv[2])['forward']\n"
    )
    small = tmp_path / "small.pte"
    small.write_bytes(handmade.add_program())
    assert data.stat().st_size > 64 << 20
    assert grown(script, path, data, small) < 16


# -- loading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "data"), [("one", ["one"]), ("two", ["first", "second"]), ("inside", [])])
def test_the_engine_runs_what_stock_wrote_with_weights_outside(
    name: str, data: list[str], stock_external: Path
) -> None:
    x, expected, _ = torch.load(stock_external / "expected.pt")
    program = dk.load(stock_external / f"{name}.pte", data=[stock_external / f"{item}.ptd" for item in data])
    torch.testing.assert_close(program["forward"](x), expected)


def test_data_files_beside_the_program_are_found(exported: Any, stock_external: Path, tmp_path: Path) -> None:
    x, expected, _ = torch.load(stock_external / "expected.pt")
    torch.testing.assert_close(dk.load(stock_external / "one.pte")["forward"](x), expected)
    program = lower(exported, lambda name, data: "big" if data.nbytes > 20 else True)
    program.save(tmp_path / "model.pte")
    wanted = dk.load(program.buffer, data=list(program.data_files.values()))["forward"](X)
    torch.testing.assert_close(dk.load(tmp_path / "model.pte")["forward"](X), wanted)
    (tmp_path / "model.pte").rename(tmp_path / "moved.pte")
    with pytest.raises(FormatError, match=r"is outside the \.pte, and not in .*big\.ptd"):
        dk.load(tmp_path / "moved.pte")
    (tmp_path / "model.ptd").rename(tmp_path / "moved.ptd")
    torch.testing.assert_close(dk.load(tmp_path / "moved.pte")["forward"](X), wanted)
    inside = lower(exported, False)
    inside.save(tmp_path / "moved.pte")  # which needs none of what is beside it
    assert not dk.load(tmp_path / "moved.pte")["forward"](X).isnan().any()


def test_a_missing_data_file_is_refused_with_the_key_and_what_to_do(stock_external: Path) -> None:
    with pytest.raises(FormatError, match=r"tensor a\.weight: its data \(float \[8, 4\]\) is outside") as caught:
        dk.load((stock_external / "one.pte").read_bytes())
    assert "no data file is given" in caught.value.what and "load(path, data=" in str(caught.value.hint)
    with pytest.raises(FormatError, match=r"tensor b\.weight.* and not in .*first\.ptd"):
        dk.load(stock_external / "two.pte", data=stock_external / "first.ptd")


def external(
    *sizes: int, key: str = "weight", kind: int = 6, order: bytes | None = None, offset: int | None = None
) -> schema.EValue:
    value = handmade.tensor(list(sizes), offset)
    tensor = value.val
    assert isinstance(tensor, schema.Tensor)
    tensor.scalar_type, tensor.dim_order = kind, order or tensor.dim_order
    tensor.extra_tensor_info = schema.ExtraTensorInfo(fully_qualified_name=key, location=1)
    return value


def add(weight: schema.EValue) -> bytes:
    """x + weight, the weight being outside."""

    def change(plan: schema.ExecutionPlan) -> None:
        plan.values[1] = weight  # type: ignore[index]

    return to_bytes(PteImage(handmade.add_image(change).plans))


def stored(key: str, *sizes: int, kind: int = 6, order: bytes | None = None, data: Any = None) -> bytes:
    layout = TensorLayout(kind, list(sizes), order or bytes(range(len(sizes))))
    return ptd_to_bytes(PtdImage((Datum(key, handmade.WEIGHT if data is None else data, layout),)))


MISMATCHES: dict[str, tuple[bytes, bytes, str]] = {
    "sizes": (
        add(external(5)),
        stored("weight", 1, 5),
        r"is float \[5\] in the .pte, but float \[1, 5\] in data file 0",
    ),
    "dtype": (add(external(5)), stored("weight", 5, kind=3), r"is float \[5\] in the .pte, but int \[5\]"),
    "dim order": (
        add(external(5, 1)),
        stored("weight", 5, 1, order=b"\1\0"),
        r"float \[5, 1\] in the .pte, but float \[5, 1\], dim order \[1, 0\] in",
    ),
    "size": (add(external(5)), stored("weight", 4, data=bytes(16)), r"is float \[5\] in the .pte, but float \[4\]"),
    "no tensor": (
        add(external(5)),
        ptd_to_bytes(PtdImage((Datum("weight", bytes(20)),))),
        "is in data file 0, but not as a tensor",
    ),
    "another key": (add(external(5)), stored("bias", 5), r"not in data file 0"),
}


@pytest.mark.parametrize("name", MISMATCHES)
def test_data_that_is_not_what_the_program_wants_is_refused_with_the_key_and_both_layouts(name: str) -> None:
    program, data, words = MISMATCHES[name]
    with pytest.raises(FormatError, match=words) as caught:
        dk.load(program, data=data)
    assert str(caught.value.where) == "method forward, tensor weight"


@pytest.mark.parametrize("name", [name for name in MISMATCHES if name != "no tensor"])
def test_the_stock_runtime_refuses_it_too(name: str, tmp_path: Path) -> None:
    program, data, _ = MISMATCHES[name]
    (tmp_path / "a.ptd").write_bytes(data)
    loaded = _C._load_program_from_buffer(program, data_path=str(tmp_path / "a.ptd"))
    with pytest.raises(RuntimeError, match=r"0x:2[04]"):
        loaded.load_method("forward")


def test_a_hand_built_program_with_its_weight_outside_runs_in_both_engines(tmp_path: Path) -> None:
    program, data = add(external(5)), stored("weight", 5)
    (tmp_path / "a.ptd").write_bytes(data)
    loaded = _C._load_program_from_buffer(program, data_path=str(tmp_path / "a.ptd"))
    expected = [11.0, 22.0, 33.0, 44.0, 55.0]
    x = torch.arange(1.0, 6.0)
    assert loaded.load_method("forward")((x,))[0].tolist() == expected
    assert dk.load(program, data=data)["forward"](x).tolist() == expected


def test_a_buffer_whose_initial_value_is_outside_starts_there_and_goes_on_in_both_engines(tmp_path: Path) -> None:
    """We do not write such files, but the format allows them."""
    values = [
        handmade.tensor([5], 0),
        external(5, key="state", offset=64),
        schema.EValue(schema.Int(1)),
        schema.EValue(schema.Bool(False)),
        handmade.tensor([5], 128),
    ]
    calls = [schema.KernelCall(0, [1, 0, 2, 4, 4]), schema.KernelCall(1, [1, 4, 3, 1])]
    names = [schema.Operator("aten::add", "out"), schema.Operator("aten::copy_", "")]
    plan = handmade.plan(values, [0], [4], calls, operators=names, non_const_buffer_sizes=[0, 192])
    program, data = to_bytes(PteImage((plan,))), stored("state", 5, data=torch.full((5,), 100.0))
    (tmp_path / "a.ptd").write_bytes(data)
    loaded = _C._load_program_from_buffer(program, data_path=str(tmp_path / "a.ptd"))
    stock, ours = loaded.load_method("forward"), dk.load(program, data=data)["forward"]
    assert [stock((torch.ones(5),))[0][0].item() for _ in range(3)] == [101.0, 102.0, 103.0]
    assert [ours(torch.ones(5))[0].item() for _ in range(3)] == [101.0, 102.0, 103.0]


def test_a_key_that_is_in_the_program_too_must_mean_the_same() -> None:
    program = handmade.delegate_program()
    dk.pte.read(program).with_data(ptd_to_bytes(PtdImage((Datum("key", b"data"),))))
    with pytest.raises(FormatError, match=r"key: is in data file 0 and in the \.pte, with different content"):
        dk.load(program, data=ptd_to_bytes(PtdImage((Datum("key", b"other"),))))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda info: setattr(info, "fully_qualified_name", None), "has no name"),
        (lambda info: setattr(info, "location", 2), "unknown location 2"),
    ],
)
def test_a_damaged_reference_is_refused(change: Callable[[Any], None], words: str) -> None:
    value = external(5)
    change(value.val.extra_tensor_info)  # type: ignore[union-attr]
    with pytest.raises(FormatError, match=words):
        dk.load(add(value), data=stored("weight", 5))


def test_writing_to_a_constant_that_is_outside_is_refused() -> None:
    def change(plan: schema.ExecutionPlan) -> None:
        plan.values[1] = external(5)  # type: ignore[index]
        plan.chains[0].instructions[0].instr_args.args = [0, 0, 2, 1, 1]  # type: ignore[index,union-attr]

    program = to_bytes(PteImage(handmade.add_image(change).plans))
    with pytest.raises(FormatError, match="is a constant, but is written"):
        dk.load(program, data=stored("weight", 5))
