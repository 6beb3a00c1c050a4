"""A backend's description of itself, and differences between those of two runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from delegatekit.plugins import discovery
from delegatekit_api import BackendOptions, option
from delegatekit_api.schemes import QuantizationRule, QuantizationScheme, TensorQuantization
from delegatekit_conformance.declaration import Declaration
from delegatekit_conformance.described import Description, Saying, altered, describe

SOUND: Description = {
    "backend": {"hooks": ("preprocess", "targets"), "summary": "Fast."},
    "option speed": {"default": "1", "choices": ("1", "2"), "help": "How fast."},
    "scheme w8": {"rule for linear": "weight int8"},
}


@pytest.mark.parametrize(
    "subject, facts, expected",
    [
        ("option speed", {"default": "2"}, ("said", "default", "1", "2")),
        ("option speed", {"help": "How slow."}, ("said", "help", "How fast.", "How slow.")),
        ("option speed", {"choices": ("1",)}, ("lost", "choices", "2", "gone")),
        ("option speed", {"choices": ("1", "2", "3")}, ("gained", "choices", "", "3")),
        ("option speed", {"choices": "any"}, ("said", "choices", "1, 2", "any")),
        ("scheme w8", {"rule for linear": "weight int4"}, ("said", "rule for linear", "weight int8", "weight int4")),
        ("scheme w8", {"rule for add": "shares"}, ("gained", "rule for add", "", "shares")),
        ("scheme w4", {}, ("gained", "", "", "there")),
        ("backend", {"hooks": ("targets",)}, ("lost", "hooks", "preprocess", "gone")),
    ],
)
def test_a_changed_fact_says_whether_something_is_lost(
    subject: str, facts: dict[str, str], expected: tuple[str, ...]
) -> None:
    changed = {**SOUND, subject: {**SOUND.get(subject, {}), **facts}}
    (found,) = altered(Saying(SOUND), Saying(changed))
    assert (found.kind, found.what, found.old, found.new) == expected
    assert found.subject == subject


def test_what_is_gone_is_lost_and_the_order_of_choices_says_nothing() -> None:
    less = {key: facts for key, facts in SOUND.items() if key != "scheme w8"}
    assert [(one.kind, one.subject) for one in altered(Saying(SOUND), Saying(less))] == [("lost", "scheme w8")]
    turned = {**SOUND, "option speed": {**SOUND["option speed"], "choices": ("2", "1")}}
    assert not altered(Saying(SOUND), Saying(turned))


ERROR = Declaration("relative_error:w8", "relative_error = 0.001", "scheme w8", "results may be off", value=0.001)
SPECIAL = Declaration("special_values:NaN", "NaN is lost", "rows of a, b", "such results", rows=("a", "b"))
EXPECTED = Declaration("expected:known", "known", "expectations", "faults are expected")


@pytest.mark.parametrize(
    "old, new, kinds",
    [
        ((ERROR,), (replace(ERROR, value=0.002, what="relative_error = 0.002"),), ["lost"]),
        ((ERROR,), (replace(ERROR, value=0.0005, what="relative_error = 0.0005"),), ["gained"]),
        ((), (ERROR,), ["lost"]),
        ((ERROR,), (), ["gained"]),
        ((SPECIAL,), (replace(SPECIAL, rows=("a", "b", "c")),), ["lost"]),
        ((SPECIAL,), (replace(SPECIAL, rows=("a", "c")),), ["lost", "gained"]),
        ((SPECIAL,), (replace(SPECIAL, measured="explains 3"),), []),
        ((), (EXPECTED,), []),
    ],
)
def test_a_looser_declaration_is_a_loss(
    old: tuple[Declaration, ...], new: tuple[Declaration, ...], kinds: list[str]
) -> None:
    assert [one.kind for one in altered(Saying({}, old), Saying({}, new))] == kinds


def test_every_part_of_what_a_backend_offers_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Options(BackendOptions):
        """Options."""

        names: frozenset[str] = option(frozenset({"b", "a"}), help="Some names.")

    backend = discovery.get_backend("reference")
    sound = describe(backend, {})
    assert sound == describe(backend, {})
    assert sound["row aten.add.Tensor"]["whole"] == "False"
    assert "create_partitioner" in sound["backend"]["hooks"]
    assert any(subject.startswith("option ") for subject in sound)
    weight = TensorQuantization("int8", symmetric=True)
    scheme = QuantizationScheme("w8", "Weights.", "weight-only", (QuantizationRule(("linear",), weight=weight),))
    monkeypatch.setattr(backend, "quantization_schemes", lambda options: (scheme,))
    monkeypatch.setattr(backend, "targets", lambda: 1 / 0)
    monkeypatch.setattr(backend, "description", replace(backend.description, options=Options))
    described = describe(backend, {})
    assert described["scheme w8"]["rule for linear"] == (
        "weight int8 symmetric per tensor [-128, 127] by minmax, at least 1.1920928955078125e-07"
    )
    assert described["option names"]["default"] == '["a", "b"]'
    assert not any(subject.startswith("target ") for subject in described), "what cannot be asked is left out"
