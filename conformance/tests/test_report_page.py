"""The page: its content, its self-containedness, its colors, and its behavior in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from delegatekit_conformance import report
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.report import page
from delegatekit_conformance.report.marks import mark
from delegatekit_conformance.run import BackendFacts, Run

DTYPES = ("float32", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool")
OPERATORS = 230
#: Text of a message that could break a page.
NASTY = "</script><script>alert(1)</script><img src=http://example.org/x onerror=alert(1)> \x1b[31m\x00" + "long" * 60
SNIPPET = "import torch\n" + "x = torch.ones(1)  # " + "a long line " * 20 + "\n" + "print(x)\n" * 20


def make_run(name: str = "acme", *, operators: int = OPERATORS, shift: int = 0) -> Run:
    """A run with every verdict in the matrix and in every room."""
    verdicts = list(Verdict)
    results = []
    for row in range(operators):
        operator = f"aten.an_operator_with_a_long_name_{row}.default"
        for column, dtype in enumerate(DTYPES):
            if (row + column) % 11 == 0:
                continue
            verdict = verdicts[(row * 3 + column + shift) % len(verdicts)] if row % 10 == 0 else Verdict.FALLBACK
            results.append(make_case(f"operators/{operator}/{dtype}", verdict, operator=operator, dtype=dtype))
    for room in ("contract", "graphs", "models", "robustness"):
        results += [make_case(f"{room}/a_case_{verdict.name.lower()}", verdict) for verdict in Verdict]
    core = Outcome(Verdict.RUN_ERROR, NASTY, blame="core", core="run error: of core", snippet=SNIPPET)
    results.append(
        replace(results[0], case="operators/aten.core.default/bool", counts={}, faults=(), core_faults=(core,))
    )
    results[-1] = replace(results[-1], tags={"room": "operators", "operator": "aten.core.default", "dtype": "bool"})
    return Run(
        BackendFacts(name, f"delegatekit-{name}", "1.0", "AcmeBackend", "an NPU"),
        tuple(results),
        started="2026-11-21T12:00:00Z",
        seconds=700.0,
        versions={"delegatekit-conformance": "0.1.0"},
        machine={"platform": "Linux-" + "x" * 90},
        device={"name": "NPU 7"},
        unused_expectations=("operators/nothing*",),
    )


def make_case(name: str, verdict: Verdict, **tags: str) -> CaseResult:
    faults: tuple[Outcome, ...] = ()
    if verdict.is_fault:
        faults = (
            Outcome(verdict, NASTY, "x" * 300, "backend", error=0.5, tolerance=1e-6, snippet=SNIPPET, shrunk=True),
        )
    counts = {verdict: 30} | ({Verdict.FALLBACK: 15} if verdict is Verdict.DELEGATED else {})
    return CaseResult(
        name,
        {"room": name.partition("/")[0], **tags},
        counts,
        faults,
        reasons=(f"{tags['operator']}: inputs_1 is {tags['dtype']}: only float32 is taken",) if tags else (),
        closeness=0.5,
        latencies=((3e-5, 2e-5),) if verdict is Verdict.DELEGATED else (),
        expected="known" if verdict is Verdict.TIMEOUT else None,
        detail="seen" if verdict is Verdict.PASSED else "",
    )


class Parsed(HTMLParser):
    """Elements with their attributes; the cells of the matrix."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def having(self, name: str) -> list[dict[str, str | None]]:
        return [each for _, each in self.elements if name in (each.get("class") or "").split()]


@pytest.fixture(scope="module")
def run() -> Run:
    return make_run()


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return report.html([run])


def test_the_page_needs_nothing_beside_itself(text: str) -> None:
    parsed = Parsed(text)
    links = [
        each[name] or "" for _, each in parsed.elements for name in ("href", "src", "srcset", "action") if name in each
    ]
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\(", text)
    assert parsed.of("meta")[2]["content"].startswith("default-src 'none';")  # type: ignore[union-attr]
    assert len(parsed.of("script")) == len(parsed.of("style")) == 1
    assert not parsed.of("img")  # messages stay text
    assert "\x1b" not in text
    assert "\x00" not in text


def test_each_case_of_an_operator_is_a_square(run: Run, text: str) -> None:
    parsed = Parsed(text)
    squares = [result for result in run.results if "dtype" in result.tags]
    assert len(parsed.having("cell")) == len(squares)
    assert len(parsed.having("cell")) + len(parsed.having("empty")) == (OPERATORS + 1) * len(DTYPES)
    # Color is never alone: each has a letter, and words for readers who can see neither.
    assert len(
        re.findall(r'<td class="cell[^>]*><span aria-hidden="true">\S</span><span class="hidden-text">\w', text)
    ) == len(squares)


def test_no_two_verdicts_look_the_same() -> None:
    assert len({mark(verdict).symbol for verdict in Verdict}) == len(Verdict)


def test_headers_have_a_scope_and_links_a_target(text: str) -> None:
    parsed = Parsed(text)
    assert all("scope" in header for header in parsed.of("th"))
    names = [each["id"] for _, each in parsed.elements if "id" in each]
    assert len(names) == len(set(names))
    assert {(link["href"] or "")[1:] for link in parsed.of("a")} <= set(names)


def test_the_page_says_it_in_words_and_numbers(run: Run, text: str) -> None:
    assert f"{len(run.faults)} cases with faults" in text
    for verdict in Verdict:
        assert verdict.value in text
        assert verdict.meaning.split(";")[0].replace("'", "&#39;") in text
    assert "… is int8: only float32 is taken" in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text
    assert "<title>operators/aten." in text  # a point of the plot
    assert "NPU 7" in text


def test_backends_stand_side_by_side(run: Run) -> None:
    parsed = Parsed(text := report.html([run, make_run("other", operators=5)]))
    assert [header.get("colspan") for header in parsed.of("th") if header["scope"] == "colgroup"] == [
        "2",
        "2",
        "9",
        "9",
    ]
    assert "acme · other" in text
    assert "not run" not in text
    assert "acme 1.0 (2)" in report.html([run, run])
    with pytest.raises(ValueError, match="at least one"):
        report.html([])


def test_a_page_of_a_whole_suite_is_below_two_megabytes(text: str) -> None:
    assert len(text.encode()) < 2_000_000


def test_many_faults_do_not_make_the_page_endless(run: Run) -> None:
    wrong = make_case("operators/aten.a.b/int8", Verdict.MISMATCH, operator="aten.a.b", dtype="int8")
    many = tuple(replace(wrong, case=f"operators/aten.a{number}.b/int8") for number in range(1000))
    text = report.html([replace(run, results=many)])
    assert "… and 800 more" in text
    assert len(text.encode()) < 2_000_000


# Colors


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks_for(
    theme: int, theme_colors: Callable[..., Any], contrast: Callable[[str, str], float]
) -> None:
    colors, pairs = theme_colors(Path(page.__file__).with_name("page.css"), theme)
    assert len(pairs) == 8
    pairs += [(back, front) for back in ("page", "surface", "code") for front in ("text", "muted", "accent")]
    for back, front in pairs:
        assert contrast(colors[back], colors[front]) >= 4.5, (back, front)
    for number in range(4):
        assert contrast(colors["page"], colors[f"series-{number}"]) >= 3  # shapes


# In a browser


@pytest.fixture(scope="module")
def address(text: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    (folder / "one.html").write_text(text, "utf-8")
    report.write_html(folder / "two.html", [make_run(operators=20), make_run("other", operators=20, shift=5)])
    return folder.as_uri()


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_nothing_overflows_a_phone_and_nothing_complains(
    browser: Any, watched: Any, address: str, name: str, script: bool
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, java_script_enabled=script)
    tab, complaints, requests = watched(context)
    tab.goto(f"{address}/{name}.html")
    if script:
        tab.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        tab.locator("tr.operator button").first.click()
    width = tab.locator("html").evaluate("(html) => html.ownerDocument.scrollingElement.scrollWidth")
    assert width <= 360
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert tab.locator("#matrix .cell").first.is_visible()
    assert tab.locator("#filter").is_visible() is script
    first, box = tab.locator("tr.operator .first").first, tab.locator(".matrix")
    box.evaluate("(box) => { box.scrollLeft = 200 }")
    assert abs(first.bounding_box()["x"] - box.bounding_box()["x"]) < 6  # the first column stays
    context.close()


def test_the_matrix_can_be_filtered_and_opened(browser: Any, address: str) -> None:
    tab = browser.new_page()
    tab.goto(f"{address}/one.html")
    tab.fill("#filter", "NAME_22")
    assert tab.locator("#shown").inner_text() == f"11 of {OPERATORS + 1} operators"
    tab.select_option("#kind", "fault")
    assert tab.locator("tr.operator:visible").count() == 1  # only every tenth operator has a fault: 220
    button = tab.locator("tr.operator:visible button")
    button.focus()
    tab.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    link = tab.locator("tr.detail:visible a").first
    target = link.get_attribute("href")
    link.click()
    assert tab.locator(target).get_attribute("open") is not None
    tab.fill("#filter", "nothing has this name")
    assert tab.locator("#nothing").is_visible()
    tab.close()


def test_a_snippet_can_be_copied(browser: Any, address: str) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    tab.goto(f"{address}/one.html")
    tab.locator(".snippet button").first.click()
    tab.locator("text=Copied").first.wait_for(timeout=5000)
    assert tab.evaluate("navigator.clipboard.readText()") == SNIPPET
    context.close()
