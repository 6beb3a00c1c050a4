"""A backend that fails while a module is quantized for it is blamed; the module is not called unfit for export."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from delegatekit_api import PluginError
from delegatekit_conformance.cases.quantized import cases
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (PluginError("failed while saying which layers it computes in float: KeyError"), Verdict.LOWERING_ERROR),
        (ValueError("no graph"), Verdict.NOT_EXPORTABLE),
    ],
)
def test_a_failing_plugin_is_a_fault_of_the_backend(
    error: Exception, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> NoReturn:
        raise error

    monkeypatch.setattr("delegatekit.quantize", fail)
    case = next(iter(cases()))
    outcome = case.run("any", Context("reference", PROFILES["quick"]))
    assert outcome.verdict is verdict
    assert outcome.blame == ("backend" if verdict.is_fault else "")
