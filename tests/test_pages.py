"""All pages that we write: foreign text in them is text, and injected markup could not run."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance import report
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.run import BackendFacts, Run
from delegatekit_tools.sweep import LeftOut, OutputErrors, Row, Sweep

#: Text whose execution would be noticed, as an element, as an attribute, in a script and in a style sheet.
NASTY = (
    "</script></style><script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    '" onmouseover="window.ran = 3" style="color: red" \' onfocus=\'window.ran = 4\u202e\x1b[31m'
)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.add_module(NASTY.replace(".", ""), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self, NASTY.replace(".", ""))(x).atan()


def spoiled(value: Any, kept: frozenset[str] = frozenset()) -> Any:
    """A copy with `NASTY` in every text, however deep, but for the fields that are kept."""
    if isinstance(value, str):
        return NASTY
    if isinstance(value, Enum):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.name not in kept)
        return dataclasses.replace(value, **{name: spoiled(getattr(value, name), kept) for name in fields})
    if isinstance(value, Mapping):
        return {(key if key in kept else spoiled(key, kept)): spoiled(item, kept) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(spoiled(item, kept) for item in value)
    return value


def delegation() -> str:
    return delegatekit.html(delegatekit.lower(Net().eval(), (torch.randn(1, 8),), backends=["xnnpack"]), NASTY)


def explanation() -> str:
    return delegatekit.explain(Net().eval(), (torch.randn(1, 8),), backends=["xnnpack"]).html(NASTY)


def comparison() -> str:
    found = delegatekit.compare(Net().eval(), (torch.randn(1, 8),), backends=["reference"])
    parts = dataclasses.replace(found, lowered=None)
    return dataclasses.replace(spoiled(parts, frozenset({"node", "nodes"})), lowered=found.lowered).html(NASTY)


def lowered(**settings: Any) -> delegatekit.LoweredProgram:
    return delegatekit.lower(Net().eval(), (torch.randn(1, 8),), backends=["reference"], **settings)


def profile() -> str:
    program = lowered()
    method = delegatekit.load(program.buffer)["forward"]
    found = delegatekit.profile(method, (torch.randn(1, 8),), runs=2, debug_map=program.debug_map())
    told = spoiled(found, frozenset({"calls"}))
    return dataclasses.replace(told, method=found.method).html(NASTY, program.buffer)


def differences() -> str:
    one, other = lowered(), lowered(skip=["aten.atan.default"])
    found = delegatekit.diff(one.buffer, other.buffer, debug_maps=(one.debug_map(), other.debug_map()))
    texts = {name: spoiled(getattr(found, name), frozenset({"unit"})) for name in ("figures", "moved", "kernels")}
    return dataclasses.replace(found, **texts, before=NASTY, after=NASTY, remarks=(NASTY,)).html(NASTY)


def sweep() -> str:
    row = Row(
        "key",
        "one",
        "chip",
        "compiles",
        "reason",
        "maker",
        {"depth": "x"},
        "int8",
        2,
        5,
        7,
        (LeftOut("aten.sin", 2, "no"),),
        0.1,
        {"sram": 1},
        "tool",
        outputs=(OutputErrors("[0]", "float32", 4, 4, 1.0, 0.1, 0.9), OutputErrors("[1]", "int64", 4, 1)),
        wall_seconds=1.0,
        not_run="no",
    )
    failed = dataclasses.replace(row, outcome="failed")
    return Sweep(tuple(spoiled(item, frozenset({"outcome"})) for item in (row, failed))).html(NASTY)


def conformance() -> str:
    fault = Outcome(
        Verdict.MISMATCH, "detail", "example", "backend", 1, 1, 1, "core", ("refusal",), 1.0, 0.1, snippet="snippet"
    )
    tags = {"room": "operators", "operator": "aten.add.Tensor", "dtype": "float32"}
    cases = [
        CaseResult(
            "operators/a",
            tags,
            {Verdict.MISMATCH: 1, Verdict.DELEGATED: 3},
            (fault,),
            (fault,),
            ("reason",),
            latencies=((1.0, 2.0),),
        ),
        CaseResult("operators/b", tags, {Verdict.PASSED: 1}, detail="detail", latencies=((2.0, 2.0),)),
        CaseResult("operators/c", tags, {Verdict.REFUSED: 2}, reasons=("reason",), expected="expected"),
        CaseResult("graphs/d", {"room": "graphs"}, {Verdict.CRASH: 1}, (fault,), expected="expected"),
    ]
    run = Run(
        BackendFacts("name", "distribution", "version", "id", "summary", available=False, reason="reason"),
        tuple(cases),
        options={"key": "value"},
        started="2026-01-01T00:00:00Z",
        versions={"torch": "2"},
        machine={"platform": "x"},
        device={"name": "x"},
        unused_expectations=("pattern",),
    )
    kept = frozenset({"room", "operator", "dtype", "torch", "platform"})
    return report.html([run, spoiled(run, kept), spoiled(run)])


#: Every kind of page.
PAGES: dict[str, Callable[[], str]] = {
    "delegation": delegation,
    "explanation": explanation,
    "comparison": comparison,
    "profile": profile,
    "differences": differences,
    "sweep": sweep,
    "conformance": conformance,
}


@pytest.fixture(scope="module", params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    return PAGES[request.param]()


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_a_page_has_no_markup_of_others_and_none_that_its_policy_forbids(page: str) -> None:
    elements = Parsed(page).elements
    assert not [tag for tag, _ in elements if tag in ("img", "iframe", "object", "base", "form")]
    assert not [name for _, attributes in elements for name in attributes if name == "style" or name.startswith("on")]
    (policy,) = (one["content"] for tag, one in elements if tag == "meta" and "http-equiv" in one)
    assert policy is not None and "unsafe" not in policy
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == directives["base-uri"] == directives["form-action"] == "'none'"
    for kind in ("style-src", "script-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", directives[kind])


def shown(browser: Any, path: Path) -> tuple[Any, list[str]]:
    """The page in a tab, and the browser's complaints."""
    tab = browser.new_page()
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(path.as_uri())
    return tab, complaints


def test_a_page_works_under_its_policy_and_runs_nothing_of_others(browser: Any, page: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page, "utf-8")
    tab, complaints = shown(browser, path)
    tab.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    for index in range(20):
        buttons = tab.locator("button:visible")  # fewer, where a button closes what others are in
        if index < buttons.count():
            buttons.nth(index).click(timeout=5000, force=True)
    assert complaints == []
    assert tab.evaluate("window.ran") is None
    # The page's own style sheet is applied.
    assert "sans" in tab.evaluate("getComputedStyle(document.body).fontFamily")
    tab.close()


@pytest.mark.parametrize(
    "hole",
    [
        "<script>window.ran = 1</script>",
        "<img src=x onerror='window.ran = 1'>",
        "<svg onload='window.ran = 1'></svg>",
        "<style>body { color: rgb(1, 2, 3) }</style>",
        "<p id=inline style='color: rgb(1, 2, 3)'>x</p>",
        "<base href='https://example.com/'>",
    ],
)
def test_what_got_in_as_markup_is_not_run(browser: Any, page: str, tmp_path: Path, hole: str) -> None:
    path = tmp_path / "page.html"
    path.write_text(page.replace("<h1>", f"{hole}<h1>", 1), "utf-8")
    tab, complaints = shown(browser, path)
    tab.wait_for_timeout(50)
    assert any("Content Security Policy" in words for words in complaints)
    assert tab.evaluate("window.ran") is None
    for place in ("document.body", "document.getElementById('inline') ?? document.body"):
        assert tab.evaluate(f"getComputedStyle({place}).color") != "rgb(1, 2, 3)"
    assert tab.evaluate("document.baseURI").startswith("file:")
    tab.close()
