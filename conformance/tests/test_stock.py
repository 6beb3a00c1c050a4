"""The stock runtime as second judge: reasons not to use it, and the precision by which it is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_conformance import stock, trial
from delegatekit_conformance.cases.specimens import SPECIMENS
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import CaseResult, Outcome, Tally, Verdict
from delegatekit_conformance.trial import try_recipe

CONTEXT = Context("reference", PROFILES["quick"])
#: A program whose sums are rounded in any precision.
RECIPE = SPECIMENS["linear"]


@pytest.fixture
def reference() -> Any:
    return discovery.get_backend("reference")


@pytest.fixture
def described(reference: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Changes the reference backend's description of itself."""

    # Whatever process other tests have started.
    monkeypatch.setattr(stock, "hosts", lambda identifiers: False)

    def change(**facts: Any) -> None:
        monkeypatch.setattr(reference, "description", replace(reference.description, **facts))

    return change


@pytest.fixture
def half_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stock runtime that has every delegate, and computes in float16."""

    class Method:
        def __init__(self, data: bytes, backends: Sequence[str] = ()) -> None:
            self.method = trial.delegatekit.load(data)["forward"]

        def run(self, inputs: Sequence[Any]) -> list[Any]:
            return [value.half().to(value.dtype) for value in trial.flatten(self.method.run(inputs))]

    monkeypatch.setattr(stock, "refusal", lambda delegates: "")
    monkeypatch.setattr(stock, "StockMethod", Method)


def test_the_device_is_judged_by_its_own_precision(half_device: None, described: Callable[..., None]) -> None:
    outcome = try_recipe(RECIPE, CONTEXT)
    assert outcome.verdict is Verdict.STOCK
    assert "relative error" in outcome.detail
    described(device_compute_precision="float16")
    outcome = try_recipe(RECIPE, CONTEXT)
    assert (outcome.verdict, outcome.stock) == (Verdict.DELEGATED, "right")
    assert outcome.tolerance is not None
    assert outcome.tolerance < 2**-11  # the runtime here keeps its own tolerance


def test_a_device_has_the_precision_of_the_host_unless_the_backend_says_other(
    reference: Any, described: Callable[..., None]
) -> None:
    assert stock.device_precision(reference) == "float32"
    described(device_compute_precision="float16")
    assert stock.device_precision(reference) == "float16"


def test_an_option_that_makes_the_host_coarser_makes_the_device_as_coarse() -> None:
    description = SimpleNamespace(compute_precision="float32", device_compute_precision="float32")
    backend: Any = SimpleNamespace(description=description, compute_precision=lambda options: options["precision"])
    assert stock.device_precision(backend, {"precision": "float32"}) == "float32"
    assert stock.device_precision(backend, {"precision": "float16"}) == "float16"
    description.device_compute_precision = "bfloat16"
    assert stock.device_precision(backend, {"precision": "float16"}) == "bfloat16"


def test_a_delegate_that_its_own_runtime_runs_in_stock_is_judged_by_the_precision_here(
    half_device: None, described: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    described(device_compute_precision="float16")
    assert try_recipe(RECIPE, CONTEXT).stock == "right"
    monkeypatch.setattr(stock, "hosts", lambda identifiers: True)
    outcome = try_recipe(RECIPE, CONTEXT)
    assert (outcome.verdict, outcome.stock, outcome.hosted) == (Verdict.STOCK, "wrong", True)


def test_sizes_that_the_device_does_not_take_are_judged_where_its_own_runtime_runs_it(
    described: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    described(device_dynamic_shapes=False)
    assert trial.not_in_stock(CONTEXT, ["reference"], dynamic=True) == stock.STATIC
    monkeypatch.setattr(stock, "hosts", lambda identifiers: True)
    assert not trial.not_in_stock(CONTEXT, ["reference"], dynamic=True)


# Reasons not to use it


def unjudged(context: Context = CONTEXT) -> str:
    outcome = try_recipe(RECIPE, context)
    assert outcome.verdict is Verdict.DELEGATED
    assert not outcome.stock
    return outcome.unjudged


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a process in place of the one that runs stock files: its wheel gives the given answers."""

    def put(
        fault: str = "",
        known: frozenset[str] = frozenset(),
        answer: str = "",
        hosted: frozenset[str] = frozenset(),
        unhosted: str = "",
    ) -> None:
        own = stock.os.getpid()
        made = stock._Process(SimpleNamespace(), own, fault, known, hosted, unhosted, 0)  # type: ignore[arg-type]
        monkeypatch.setattr(made, "ask", lambda kind, content: answer)
        monkeypatch.setattr(stock, "_started", [made])
        monkeypatch.setattr(stock, "find_spec", lambda name: SimpleNamespace())

    return put


def test_it_says_that_it_is_switched_off() -> None:
    assert unjudged(replace(CONTEXT, stock=False)) == "switched off (--no-stock)"


def test_it_says_that_the_wheel_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock, "find_spec", lambda name: None)
    assert unjudged() == "the wheel executorch is not installed: pip install 'delegatekit-conformance[stock]'"


def test_it_says_how_the_wheel_fails(process: Callable[..., None]) -> None:
    process(fault="ImportError: libfoo.so.1: cannot open shared object file")
    assert "cannot be loaded: ImportError: libfoo.so.1" in unjudged()


def test_it_says_that_the_wheel_lacks_the_delegate(process: Callable[..., None]) -> None:
    process(known=frozenset({"XnnpackBackend"}), unhosted="there is no C++ compiler")
    told = "the wheel executorch does not have the delegate ReferenceBackend, and there is no C++ compiler"
    assert unjudged() == told


def test_it_says_what_the_delegate_says_that_cannot_run(process: Callable[..., None], reference: Any) -> None:
    process(known=frozenset({reference.description.delegate_id}), answer="set ACME_LIB_PATH")
    assert unjudged() == "set ACME_LIB_PATH"


def test_a_delegate_that_cannot_run_is_asked_for_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def available(identifier: str) -> bool:
        stock.os.write(2, b"[acme] set ACME_LIB_PATH\n")
        return False

    monkeypatch.setattr(stock, "binding", lambda: SimpleNamespace(_is_available=available))
    told = stock._ready("AcmeBackend", "reference")
    assert told.startswith("the wheel executorch has the delegate AcmeBackend, which says that it cannot run here")
    assert told.endswith("[acme] set ACME_LIB_PATH")


def test_it_says_that_a_kernel_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(data: bytes, backends: Sequence[str] = ()) -> None:
        raise stock.MissingKernel("0x14")

    monkeypatch.setattr(stock, "refusal", lambda delegates: "")
    monkeypatch.setattr(stock, "StockMethod", missing)
    assert unjudged() == stock.NO_KERNEL


def test_a_kernel_that_the_wheel_lacks_is_told_from_other_errors() -> None:
    data = delegatekit.lower(torch.nn.Sigmoid(), (torch.ones(2),), backends=["reference"], skip=["sigmoid"]).buffer
    assert data.count(b"aten::sigmoid") == 1
    stock.start()
    stock.StockMethod(bytes(data))
    with pytest.raises(stock.MissingKernel):
        stock.StockMethod(bytes(data).replace(b"aten::sigmoid", b"aten::sigmoit"))


def test_it_says_that_sizes_change_which_the_device_does_not_take(described: Callable[..., None]) -> None:
    described(device_dynamic_shapes=False)
    assert not trial.not_in_stock(CONTEXT, ["reference"], dynamic=False)
    assert trial.not_in_stock(CONTEXT, ["reference"], dynamic=True) == stock.STATIC
    volume = torch.zeros(1, 2, 3, 4, 5)
    assert not trial.not_in_stock(CONTEXT, ["reference"], dynamic=False, inputs=[volume, 1, volume[0]])
    turned = volume.contiguous(memory_format=torch.channels_last_3d)
    assert trial.not_in_stock(CONTEXT, ["reference"], dynamic=False, inputs=[turned]) == stock.ORDER


def test_reasons_are_counted_by_case_and_survive_json() -> None:
    tally = Tally("operators/x", {"room": "operators"})
    taken = ("aten.add.Tensor",)
    tally.add(Outcome(Verdict.DELEGATED, delegates=1, stock="right", taken=taken))
    for _ in range(2):
        tally.add(Outcome(Verdict.DELEGATED, delegates=1, unjudged="no kernel", taken=taken))
    tally.add(Outcome(Verdict.FALLBACK, refusals=("aten.add.Tensor: is int8", "aten.add.Tensor: is int16")))
    found = CaseResult.from_json(tally.result().to_json())
    assert (found.stock, found.unjudged) == (1, {"no kernel": 2})
    counted: tuple[Mapping[str, int], Mapping[str, int]] = (found.taken, found.refused)
    assert counted == ({"aten.add.Tensor": 3}, {"aten.add.Tensor": 1})


def test_what_is_wrong_here_has_no_reason_why_nobody_else_judged() -> None:
    wrong = Outcome(Verdict.MISMATCH, delegates=1)
    assert stock.unjudged(wrong, "off") == wrong
    nothing = Outcome(Verdict.FALLBACK)
    assert stock.unjudged(nothing, "off") == nothing
    assert stock.unjudged(replace(wrong, verdict=Verdict.PARTLY), "off").unjudged == "off"


class Here:
    """The process of the stock runtime, in this one."""

    def ask(self, kind: str, content: Any) -> Any:
        if kind == "load":
            self.kept = content  # must live as long as the method
            self.method = stock.load(*content)
            return None
        return self.method(content)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 4, 1), (3, 3, 3, 3)], ids=str)
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format], ids=str)
def test_inputs_reach_the_stock_runtime_in_the_order_that_the_file_was_made_for(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], order: torch.memory_format
) -> None:
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")
    monkeypatch.setattr(stock, "_started", [Here()])
    x = torch.arange(math.prod(shape)).sub(7.0).reshape(shape).contiguous(memory_format=order)
    program = delegatekit.lower(torch.nn.ReLU(), (x,), backends=[])
    (result,) = stock.StockMethod(program.buffer).run([x])
    assert torch.equal(result, x.relu())
