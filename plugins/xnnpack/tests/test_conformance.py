"""The conformance suite on XNNPACK, in a selection that takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("executorch", reason="the runtime of the XNNPACK backend (executorch) is not installed")

from delegatekit_conformance import PROFILES, Verdict
from delegatekit_conformance.cases import Case, all_cases
from delegatekit_conformance.cases.quantized import cases as quantized_cases
from delegatekit_conformance.context import Context
from delegatekit_conformance.runner import select
from delegatekit_conformance.strategies import load_operators

CONTEXT = Context("xnnpack", PROFILES["quick"])
QUANTIZED: dict[str, Case] = {case.name.partition("/")[2]: case for case in quantized_cases()}
#: The fastest and most informative cases of each room.
SELECTION = (
    *(f"dynamic/{name}" for name in ("elementwise", "conv-image", "cat", "attention")),
    *(f"control-flow/{name}" for name in ("cond", "while-loop", "cond-in-while-loop")),
    "state",
    *(f"patterns/{name}" for name in ("conv-bn-relu", "sdpa-bool-mask", "square-of-a-transpose")),
    *(f"patterns/{name}" for name in ("element-of-a-constant", "nested-outputs", "clamps")),
    "graphs/*/[0-2]",
    *(f"models/{name}/small" for name in ("resnet-50", "u-net", "early-exit")),
    "robustness/*-truncated",
    "robustness/*/truncated",
    "robustness/*-flipped",
    "robustness/*/flipped",
)


@pytest.fixture(scope="module")
def cases() -> Mapping[str, Case]:
    return all_cases(CONTEXT)


@pytest.mark.parametrize("room", dict.fromkeys(name.partition("/")[0] for name in SELECTION))
def test_a_quick_selection_finds_no_fault(room: str, cases: Mapping[str, Case]) -> None:
    """In this process: worker processes would take longer to start than the cases take."""
    if room == "models":
        pytest.importorskip("transformers")
    verdicts = set()
    for name in select(cases, [pattern for pattern in SELECTION if pattern.startswith(room)]):
        for example in cases[name].examples(CONTEXT):
            outcome = cases[name].run(example, CONTEXT)
            assert not outcome.verdict.is_fault and not outcome.core, (name, outcome)
            verdicts.add(outcome.verdict)
    if room == "robustness":
        assert Verdict.PASSED in verdicts
    else:
        assert verdicts <= {Verdict.DELEGATED, Verdict.PARTLY, Verdict.FALLBACK, Verdict.NOT_APPLICABLE}
        assert Verdict.DELEGATED in verdicts or Verdict.PARTLY in verdicts


def test_every_operator_of_the_table_has_a_strategy() -> None:
    from delegatekit_xnnpack.support import TABLE

    # The edge program writes views as copies.
    copies = {"expand", "permute", "select", "slice", "squeeze", "unsqueeze", "view"}
    missing = {str(name) for name in TABLE if name.startswith("aten.")} - set(load_operators())
    assert {name.split(".")[1].removesuffix("_copy") for name in missing} <= copies


@pytest.mark.parametrize("pattern", ["conv-relu6", "linear-relu-chain"])
def test_schemes_are_judged_by_the_quantized_program_in_eager(pattern: str) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    case = QUANTIZED[pattern]
    assert "int8" in case.examples(CONTEXT)
    outcome = case.run("int8", CONTEXT)
    assert outcome.verdict is Verdict.DELEGATED and not outcome.core, outcome


def test_a_forgotten_bias_of_quantized_layers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from delegatekit_xnnpack.passes import conversions

    sound = conversions._bias

    def forgetful(bias: Any, *more: Any) -> Any:
        found = sound(bias, *more)
        return replace(found, data=found.data * 0)

    monkeypatch.setattr(conversions, "_bias", forgetful)
    outcome = QUANTIZED["conv-relu6"].run("int8", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH and outcome.blame == "backend"
    assert "delegatekit.quantize(" in outcome.snippet
