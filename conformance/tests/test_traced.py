"""Reported operators of a delegate are compared with the lowerings of its operators by themselves."""

from __future__ import annotations

from delegatekit_conformance.cases.traced import Row, confused, forgotten

ALONE = {
    "mul": frozenset({"product"}),
    "add": frozenset({"sum"}),
    "relu": frozenset({"clamp"}),
    "index_put": None,
}


def rows(*items: tuple[str, str]) -> list[Row]:
    return [Row(name, frozenset(operators.split())) for name, operators in items]


def test_what_is_traced_to_its_own_operators_is_right() -> None:
    assert confused(rows(("product", "mul"), ("sum", "add"), ("clamp", "relu")), ALONE) == ""


def test_handles_of_the_next_operator_are_found() -> None:
    assert "product" in confused(rows(("product", "add"), ("sum", "relu"), ("clamp", "")), ALONE)


def test_operators_that_become_another_beside_others_are_not_blamed() -> None:
    fused = rows(("product", "mul relu"), ("sum", "add"))
    assert confused(fused, ALONE) == ""
    rewritten = rows(("product", "mul"), ("product", "add"))
    assert confused(rewritten, ALONE) == ""


def test_what_cannot_be_asked_alone_is_not_judged() -> None:
    assert confused(rows(("sum", "index_put"), ("product", "mul")), ALONE) == ""


def test_an_operator_that_is_fused_into_another_keeps_its_handles() -> None:
    assert forgotten(rows(("product", "mul relu"), ("sum", "add")), ALONE) == ""
    assert "relu" in forgotten(rows(("product", "mul"), ("sum", "add")), ALONE)


def test_what_is_not_told_by_handles_or_only_quantizes_is_not_missed() -> None:
    assert forgotten(rows(("product", "mul"), ("sum", "")), ALONE) == "", "not everything is traced"
    quantizing = {"quantized_decomposed.quantize_per_tensor.default": frozenset({"convert"}), "mul": ALONE["mul"]}
    assert forgotten(rows(("product", "mul")), quantizing) == ""
