"""Compare: seeded faults are found and nothing else is, snippets reproduce them, misuse is reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from crooked import Faulty, deep
from torch import nn

import delegatekit as dk
from delegatekit.errors.misuse import UnknownMethodError, WrongArgumentError
from delegatekit_api import Availability, DelegateKitError, RuntimeUnavailableError


class Small(nn.Module):
    """Some operators of different kinds, one of which the backend is not given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.second(torch.atan(self.first(x).relu()))
        return y.softmax(-1), y.argmax(-1)


INPUTS = (torch.randn(2, 8, generator=torch.Generator().manual_seed(1)),)


def compare(module: nn.Module = Small().eval(), inputs: Any = INPUTS, **settings: Any) -> dk.Comparison:  # noqa: B008
    return dk.compare(module, inputs, **{"backends": ["crooked"], **settings})


# -- one wrong operator ------------------------------------------------------------------------------------------------


def test_a_wrong_operator_among_500_is_found_in_a_minute(faulty: Faulty) -> None:
    faulty("scaled aten.tanh.default")
    model, inputs = deep()
    start = time.monotonic()
    found = compare(model, inputs)
    assert time.monotonic() - start < 60
    assert len(found.operators) == 500 and found.lowerings <= 20
    assert found.first is not None and found.first.kind == "alone"
    culprit = found.first.operator
    assert culprit.name == "aten.tanh.default" and culprit.place == "crooked, delegate 0"
    assert "crooked.py" in culprit.source and "tanh" in culprit.source
    assert culprit.measured.error == pytest.approx(1e-3, rel=1e-3)
    assert culprit.measured.sqnr == pytest.approx(60, abs=0.1)
    assert [item.name for item in found.operators if not item.measured.right] == ["aten.tanh.default"]


def test_the_same_backend_without_a_fault_is_right(faulty: Faulty) -> None:
    faulty("")
    found = compare(*deep(20, 9))
    assert found.right and found.first is None and found.lowerings == 5
    assert compare(*deep(20, 9), thorough=True).right


def test_what_comes_after_a_nan_is_not_blamed(faulty: Faulty) -> None:
    faulty("nan aten.tanh.default")
    found = compare(*deep(4, 1))
    wrong = [item.name for item in found.operators if not item.measured.right]
    assert wrong == ["aten.tanh.default"]
    assert not found.outputs[0].measured.right


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("one-more aten.argmax.default", "indices select elements that are off by"),
        ("scaled aten._softmax.default", "relative error 0.001"),
        ("scaled aten.softmax.int", "relative error 0.001"),
        ("nan aten.softmax.int", "has NaN, or none"),
    ],
)
def test_outputs_of_all_kinds_are_judged(fault: str, words: str, faulty: Faulty) -> None:
    faulty(fault)
    found = compare()
    if fault.split()[1] == "aten._softmax.default":  # the reference keeps softmax whole
        assert found.right
        return
    assert found.first is not None and found.first.operator.name == fault.split()[1]
    assert words in found.first.operator.measured.difference


def test_of_two_wrong_operators_the_first_in_the_graph_is_named(faulty: Faulty) -> None:
    faulty("scaled aten.linear.default")
    found = compare()
    assert found.first is not None and found.first.operator.module == "first"
    assert sum(not item.measured.right for item in found.operators) == 2


def test_where_a_program_fails_is_found(faulty: Faulty) -> None:
    faulty("raises aten.tanh.default")
    found = compare(*deep(8, 5))
    assert not found.right and found.outputs[0].name == "the whole"
    assert found.first is not None and found.first.operator.name == "aten.tanh.default"
    assert "out of luck" in found.first.operator.measured.difference
    assert "it fails when it is lowered by itself, too" in str(found)
    with pytest.raises(DelegateKitError, match="out of luck"):
        exec(compile(found.first.snippet, "snippet", "exec"), {"__name__": "snippet"})


# -- faults of neighbors -----------------------------------------------------------------------------------------------


def test_a_fault_of_two_neighbors_is_traced_to_both(faulty: Faulty) -> None:
    faulty("after-linear aten.tanh.default")
    found = compare(*deep(30, 22))
    assert all(item.measured.right for item in found.operators)
    assert found.first is not None and found.first.kind == "context"
    assert [item.name for item in found.first.run] == ["aten.linear.default", "aten.tanh.default"]
    assert found.first.operator.name == "aten.tanh.default"
    assert found.lowerings < 25
    assert "right when it is lowered by itself" in str(found)
    assert found.first.snippet.count("torch.ops.aten") == 2


def test_a_fault_that_needs_a_crowded_delegate_is_told_so(faulty: Faulty) -> None:
    faulty("crowded aten.tanh.default")
    found = compare(*deep(8, 5))
    assert found.first is not None and found.first.kind == "context"
    assert found.first.operator.name == "aten.tanh.default" and len(found.first.run) == 3


# -- the snippet -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["scaled aten.tanh.default", "after-linear aten.tanh.default"])
def test_a_snippet_shows_the_fault_by_itself(fault: str, faulty: Faulty, capsys: pytest.CaptureFixture[str]) -> None:
    faulty(fault)
    found = compare(*deep(4, 1))
    assert found.first is not None and not found.first.tensors
    for seeded, loud in ((fault, True), ("", False)):
        faulty(seeded)
        exec(compile(found.first.snippet, "snippet", "exec"), {"__name__": "snippet"})
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("output 0"))
        error = float(line.split("largest value ")[1].split()[0])
        bound = float(line.split("bound: ")[1].split(")")[0])
        assert (error > bound) is loud, line


def test_what_is_too_much_for_a_snippet_goes_to_a_file(faulty: Faulty) -> None:
    faulty("scaled aten.linear.default")
    found = compare(nn.Linear(400, 300).eval(), (torch.randn(1, 400),))
    assert found.first is not None
    (name,) = found.first.tensors
    assert f'tensors["{name}"]' in found.first.snippet and found.first.tensors[name].shape == (300, 400)


# -- other features of programs ----------------------------------------------------------------------------------------


class Odd(nn.Module):
    """State, numbers beyond the finite ones, integers, results that nothing reads, an input that is returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> tuple[Any, ...]:
        self.count.add_(1)
        largest, _ = x.max(-1)
        return x.log(), 1 / (x - x), x > 0.3, at // 3, largest + self.count, x, 3


class Loop(nn.Module):
    """A layer inside a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch._higher_order_ops.while_loop import while_loop

        step = lambda i, y: (i + 1, torch.tanh(self.layer(y)))  # noqa: E731
        return while_loop(lambda i, y: i < 3, step, (torch.tensor(0), x))[1]


class Sized(nn.Module):
    """Uses a size that changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.tanh(), x]) + torch.arange(x.shape[0] * 2).unsqueeze(1)


def test_state_special_numbers_and_integers_are_right(faulty: Faulty) -> None:
    faulty("")
    found = compare(Odd(), (torch.randn(3, 4), torch.arange(6)))
    assert found.right, str(found)
    assert {"call 1, output 0", "call 2, output 0", "call 2, buffer count"} <= {item.name for item in found.outputs}


def test_a_module_that_was_lowered_before_is_passed_over() -> None:
    inner = dk.to_backend(nn.Tanh(), INPUTS, backend="reference")
    found = compare(nn.Sequential(inner, nn.ReLU()), backends=["reference"])
    assert found.right
    assert [item.skipped.partition(":")[0] for item in found.operators] == ["was compiled before", ""]


@pytest.mark.parametrize(("fault", "right"), [("", True), ("scaled aten.tanh.default", False)])
def test_operators_inside_a_loop_are_judged(fault: str, right: bool, faulty: Faulty) -> None:
    faulty(fault)
    found = compare(Loop().eval(), (torch.randn(3, 4),))
    assert found.right is right
    assert {"aten.linear.default", "aten.tanh.default", "while_loop"} <= {item.name for item in found.operators}
    if not right:
        assert found.first is not None and found.first.operator.name == "aten.tanh.default"


@pytest.mark.parametrize(("fault", "right"), [("", True), ("scaled aten.tanh.default", False)])
def test_sizes_may_change(fault: str, right: bool, faulty: Faulty) -> None:
    faulty(fault)
    sizes = ({0: torch.export.Dim("rows", min=1, max=9)},)
    found = compare(Sized(), (torch.randn(5, 4),), dynamic_shapes=sizes)
    assert found.right is right and not any(item.skipped for item in found.operators)


def test_operators_that_could_be_random_but_are_not_are_judged() -> None:
    model = nn.LSTM(4, 5, batch_first=True).eval()  # tagged as random, for its dropout
    found = compare(model, (torch.randn(1, 3, 4),), backends=["reference"])
    assert found.right and not any(item.skipped for item in found.operators)


def test_one_method_of_several_is_compared(faulty: Faulty) -> None:
    faulty("scaled aten.tanh.default")
    programs = {
        "plain": torch.export.export(nn.ReLU(), (torch.randn(3),), strict=False),
        "curved": torch.export.export(nn.Tanh(), (torch.randn(3),), strict=False),
    }
    assert dk.compare(programs, backends=["crooked"], method="plain").right
    assert not dk.compare(programs, backends=["crooked"], method="curved").right
    with pytest.raises(UnknownMethodError, match="which method"):
        dk.compare(programs, backends=["crooked"])


def test_a_quantized_model_is_compared_with_the_fake_quantized_one() -> None:
    pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(4 * 64, 5)).eval()
    found = dk.compare(model, (torch.randn(1, 3, 12, 12),), backends=["xnnpack"], scheme="")
    assert found.right, str(found)
    layers = [item for item in found.operators if "aten.convolution.default" in item.operators]
    assert len(layers) == 2 and all(item.measured.bound == 1.0 for item in layers)  # steps


# -- two backends ------------------------------------------------------------------------------------------------------


def test_two_backends_differ_where_one_is_wrong(faulty: Faulty) -> None:
    faulty("scaled aten.softmax.int")
    found = compare(backends=["reference"], against=["crooked"])
    assert found.backends == ("reference", "crooked")
    assert found.first is not None and found.first.operator.place == "crooked, delegate 0"
    assert "reference is right in every operator" in str(found)
    faulty("")
    assert compare(backends=["reference"], against=["crooked"]).right


# -- cases without a comparison ----------------------------------------------------------------------------------------


def test_a_backend_that_cannot_run_here_is_refused(faulty: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit.plugins import LoadedBackend

    faulty("")
    monkeypatch.setattr(LoadedBackend, "runtime_availability", lambda self, **_: Availability(False, "no such chip"))
    with pytest.raises(RuntimeUnavailableError, match=r"backend crooked: cannot run its delegates here: no such chip"):
        compare()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"values": []}, WrongArgumentError, "takes 1 inputs, 0 are given"),
        ({"values": [torch.zeros(2, 9)]}, WrongArgumentError, r"input 0 has shape \(2, 9\), not \(2, 8\)"),
        ({"values": [torch.zeros(2, 8).int()]}, WrongArgumentError, "input 0 has dtype torch.int32"),
        ({"values": [3]}, WrongArgumentError, "input 0 is a int, not a tensor"),
        ({"values": torch.zeros(2, 8)}, WrongArgumentError, "values is a tensor"),
        ({"tighten": 0.5}, WrongArgumentError, "tighten=0.5"),
        ({"method": "train"}, UnknownMethodError, "no method 'train'"),
        ({"backends": ["nobody"]}, DelegateKitError, "no backend 'nobody'"),
        ({"scheme": "int3"}, DelegateKitError, "declares no quantization schemes"),
    ],
)
def test_wrong_use_is_told(settings: dict[str, Any], error: type[Exception], words: str, faulty: Faulty) -> None:
    faulty("")
    with pytest.raises(error, match=words):
        compare(**settings)


# -- the command -------------------------------------------------------------------------------------------------------

MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 300), nn.Tanh(), nn.Linear(300, 3)).eval(), (torch.randn(2, 8),)
"""


@pytest.fixture
def call(command_with: Callable[[str], Callable[..., Any]], faulty: Faulty) -> Iterator[Any]:
    """The command, in a folder with the model; the backend's tanh is wrong."""
    faulty("scaled aten.tanh.default")
    yield command_with(MODEL)


def test_the_command_names_the_operator_and_writes_the_snippet(call: Callable[..., Any], tmp_path: Path) -> None:
    found = call("compare", "models:make", "-b", "crooked", "--snippet", "shown.py", code=1)
    assert "first operator that diverges: aten.tanh.default" in found.out
    assert "wrote shown.py" in found.out and "Written by" in (tmp_path / "shown.py").read_text()
    shown = call("compare", "models:make", "-b", "crooked", "--json", code=1)
    assert json.loads(shown.out)["first"]["operator"]["operators"] == ["aten.tanh.default"]
    told = call("compare", "models:make", "-b", "crooked", code=1).out
    assert "a program that shows it by itself: the same command with --snippet FILE.py" in told
    assert "class Example" not in told and "--snippet" not in found.out


def test_a_right_model_ends_the_command_with_0(call: Callable[..., Any], tmp_path: Path) -> None:
    found = call("compare", "models:make", "-b", "reference", "--snippet", "shown.py", "--thorough")
    assert "all 3 operators are within their bounds" in found.out
    assert not (tmp_path / "shown.py").exists()
    torch.save(torch.zeros(2, 8), tmp_path / "x.pt")
    call("compare", "models:make", "-b", "reference", "--input", "x.pt")
    call("compare", "models:make", "-b", "reference", "--against", "crooked", code=1)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["models:make"], 2, "--backend"),
        (["models:make", "-b", "nobody"], 2, "no backend 'nobody'"),
        (["models:make", "-b", "reference", "--method", "train"], 2, "no method 'train'"),
        (["models:make", "-b", "reference", "--input", "none.pt"], 2, "none.pt does not exist"),
        (["models:make", "-b", "reference", "--input", "a.pt", "--input", "b.pt"], 2, "takes 1 inputs, 2 files"),
        (["models:make", "-b", "reference", "--tighten", "0.1"], 2, "--tighten"),
        (["models:make", "-b", "reference", "--snippet", "models.py"], 2, "input"),
        (["models:make", "-b", "reference", "--against", "reference,"], 2, "leaves out a name"),
        (["net.pte", "-b", "reference"], 2, "is lowered already"),
    ],
)
def test_wrong_use_of_the_command(call: Callable[..., Any], arguments: list[str], code: int, words: str) -> None:
    found = call("compare", *arguments, code=code)
    assert words in " ".join(found.err.split()), found.err
    assert found.out == ""
