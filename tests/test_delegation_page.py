"""The delegation report: its content, its size, and its behaviour in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_tools.page import graph
from delegatekit_tools.page.graph import MODULE, RANGE, Box, Item, Leaf, leaves, nested

#: A module's name that a page could take for markup.
NASTY = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x).relu()).atan()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.add_module(NASTY.replace(".", ""), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = layer(x)
        x = getattr(self, NASTY.replace(".", ""))(x)
        return torch.cond(x.sum() > 0, lambda y: y * 2 + 1, lambda y: y - 1, (x,)), x


class Flat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.say = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.say(x).relu().atan() + 1


class Long(nn.Module):
    """5,000 operators: three in four for the backend, one for the runtime."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(1250):
            x = (x + 1).atan().relu() * 0.5
        return x


X = (torch.randn(1, 8),)


@pytest.fixture(scope="module")
def lowered() -> delegatekit.LoweredProgram:
    return delegatekit.lower(Net().eval(), X, backends=["xnnpack"])


@pytest.fixture(scope="module")
def page(lowered: delegatekit.LoweredProgram) -> str:
    return delegatekit.html(lowered, "net.pte")


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of the elements that are no scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] not in ("script", "style"):
            self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_needs_nothing_beside_itself_and_names_stay_text(page: str) -> None:
    parsed = Parsed(page)
    assert not parsed.of("img") and not parsed.of("link") and not re.search(r"@import|url\(|https?://(?!www.w3)", page)
    assert "default-src 'none'" in str(parsed.of("meta")[2]["content"])
    assert len(parsed.of("script")) == 2
    assert "\x1b" not in page and "\u202e" not in page
    assert {link["href"] for link in parsed.of("a")} <= {f"#{each['id']}" for each in parsed.of("section")}


def test_the_same_program_gives_the_same_page(page: str) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    first, second = (delegatekit.html(delegatekit.lower(model, X, backends=["xnnpack"]), "net.pte") for _ in range(2))
    assert first == second


def test_every_operator_is_drawn_once_with_who_runs_it(lowered: delegatekit.LoweredProgram, page: str) -> None:
    (method,) = data_of(page)["methods"]
    texts = data_of(page)["texts"]
    names = [texts[item[0]] for item in method["operators"]]
    explained = delegatekit.explain(Net().eval(), X, backends=["xnnpack"])
    taken = {texts[item[0]]: texts[item[5]] for item in method["operators"] if texts[item[1]] == "operator"}
    assert len(names) == len(set(names))
    assert taken == {row.node: row.backend or "" for row in explained.rows}
    atans = [item for item in method["operators"] if texts[item[2]] == "aten.atan.default"]
    reasons = [[texts[number] for number in item[9]] for item in atans]
    assert reasons == [["xnnpack", "aten.atan.default is not in the backend's operator table"]] * 3
    assert len(method["notes"]) == len(lowered.methods["forward"].delegates)


def test_arrows_go_from_makers_to_readers_and_forward_only(page: str) -> None:
    data = data_of(page)
    (method,) = data["methods"]
    names = [data["texts"][item[0]] for item in method["operators"]]
    arrows = list(zip(method["arrows"][::2], method["arrows"][1::2], strict=True))
    assert ("linear_default", "relu_default") in {(names[a], names[b]) for a, b in arrows}
    order = {number: place for place, number in enumerate(numbers(method["items"]))}
    assert all(order[a] < order[b] for a, b in arrows)
    assert sorted(order) == list(range(len(names)))


def numbers(items: list[Any]) -> Iterator[int]:
    for item in items:
        yield from [item] if isinstance(item, int) else numbers(item["items"])


def test_what_was_left_is_told_in_tables_with_reasons(page: str) -> None:
    words = " ".join(Parsed(page).words)
    assert "aten.atan.default is not in the backend's operator table" in words
    assert "Memory over time" in words and "least possible" in words
    assert "layers.0.first.weight" in words


def test_explain_makes_the_page_without_compiling() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).eval()
    text = delegatekit.explain(model, X, backends=["ethosu", "xnnpack"]).html()
    words = " ".join(Parsed(text).words)
    assert "nothing was compiled" in words and "Memory over time" not in words


def test_what_nothing_runs_is_told() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.i1(x) + 1

    words = " ".join(Parsed(delegatekit.explain(Fails(), X, backends=["xnnpack"]).html()).words)
    assert "NOTHING RUNS IT" in words or "Decomposed" in words


# Boxes


def leaf(number: int, path: str = "") -> Leaf:
    return Leaf(number, tuple(path.split(".")) if path else ())


def labels(items: list[Item]) -> list[Any]:
    return [item.number if isinstance(item, Leaf) else {item.label: labels(list(item.items))} for item in items]


def test_neighbors_of_one_module_are_a_box() -> None:
    items: list[Item] = [leaf(0), leaf(1, "a.b.c"), leaf(2, "a.b.d"), leaf(3, "a.e"), leaf(4), leaf(5, "a")]
    assert labels(nested(items)) == [0, {"a": [{"b": [1, 2]}, 3]}, 4, 5]
    assert labels(nested([leaf(0, "a.b"), leaf(1, "a.b")])) == [{"a.b": [0, 1]}]


def test_no_box_has_too_many_things_in_it() -> None:
    found = nested([leaf(number) for number in range(20_000)])
    assert list(leaves(found)) == list(range(20_000))

    def check(items: Any) -> None:
        assert len(items) <= 100
        for item in items:
            if isinstance(item, Box):
                assert item.kind in (RANGE, MODULE)
                check(item.items)

    check(found)


def test_a_path_without_end_is_cut() -> None:
    deep = ".".join("a" * 5000)
    model = nn.Linear(2, 2)
    program = torch.export.export(model, (torch.ones(1, 2),))
    for node in program.graph.nodes:
        node.meta["nn_module_stack"] = {"x": (deep, "T")}
    assert "</html>" in delegatekit.explain(program, backends=["xnnpack"]).html()


# The command

MODELS = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval(), (torch.ones(1, 4),)
"""


def test_lower_and_explain_write_the_page(command: Callable[..., Any], tmp_path: Path) -> None:
    told = command("lower", "models:make", "-b", "xnnpack", "--html", "a.html")
    assert "wrote a.html" in told.out
    assert "<h1>models.pte</h1>" in (tmp_path / "a.html").read_text("utf-8")
    assert "wrote b.html" in command("explain", "models:make", "-b", "xnnpack,ethosu", "--html", "b.html").out
    assert "models:make for xnnpack, ethosu" in (tmp_path / "b.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["lower", "explain"])
def test_the_model_is_not_replaced_by_the_page(command: Callable[..., Any], tmp_path: Path, name: str) -> None:
    before = (tmp_path / "models.py").read_bytes()
    told = command(name, "models:make", "-b", "xnnpack", "--html", "models.py", code=2)
    assert "models.py" in told.err and "Traceback" not in told.err
    assert (tmp_path / "models.py").read_bytes() == before
    assert not (tmp_path / "models.pte").exists()


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_that_wcag_aa_asks_for(
    theme: int, theme_colors: Callable[..., Any], contrast: Callable[[str, str], float]
) -> None:
    colors, pairs = theme_colors(Path(graph.__file__).with_name("page.css"), theme)
    assert len(pairs) == 8
    pairs += [(back, front) for back in ("page", "surface") for front in ("text", "muted", "accent")]
    for back, front in pairs:
        assert contrast(colors[back], colors[front]) >= 4.5, (back, front)
    for name, _ in pairs[:8]:
        assert contrast(colors["surface"], colors[f"edge-{name}"]) >= 3, name  # shapes


# In a browser


@pytest.fixture(scope="module")
def pages(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "net.html").write_text(page, "utf-8")
    flat = delegatekit.lower(Flat().eval(), X, backends=["xnnpack"])
    (folder / "flat.html").write_text(delegatekit.html(flat), "utf-8")
    program = delegatekit.lower(Long(), (torch.randn(2, 3),), backends=["xnnpack"])
    (folder / "long.html").write_text(delegatekit.html(program), "utf-8")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_nothing_overflows_and_nothing_complains(
    browser: Any, pages: Path, scheme: str, width: int, script: bool
) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 740}, color_scheme=scheme, java_script_enabled=script
    )
    tab = context.new_page()
    heard: list[str] = []
    tab.on("console", lambda message: heard.append(message.text))
    tab.on("pageerror", lambda error: heard.append(str(error)))
    tab.on("dialog", lambda dialog: heard.append("a dialog"))
    tab.on("request", lambda request: heard.append(request.url) if not request.url.startswith("file:") else None)
    tab.goto(f"{pages.as_uri()}/net.html")
    assert tab.locator("html").evaluate("(html) => html.ownerDocument.scrollingElement.scrollWidth") <= width
    assert tab.locator("#drawing").is_visible() is script
    assert tab.locator("table").first.is_visible()
    assert heard == []
    context.close()


@pytest.fixture
def tab(browser: Any, pages: Path) -> Iterator[Any]:
    opened = browser.new_page()
    opened.goto(f"{pages.as_uri()}/flat.html")
    yield opened
    opened.close()


def item(tab: Any, label: str) -> Any:
    """The first operator or box of the graph whose words begin so."""
    return tab.locator(f'#drawing [aria-label^="{label}"]').first


def test_delegates_open_and_close_by_mouse_and_keyboard(tab: Any) -> None:
    tab.click("#fold")
    box = item(tab, "delegate 0: xnnpack")
    assert box.get_attribute("aria-expanded") == "false" and not item(tab, "aten.linear.default").count()
    box.click()
    assert item(tab, "delegate 0: xnnpack").get_attribute("aria-expanded") == "true"
    assert item(tab, "aten.linear.default").is_visible()
    assert "blob" in tab.locator("#facts").inner_text()
    item(tab, "delegate 0: xnnpack").focus()
    tab.keyboard.press("Enter")
    assert item(tab, "delegate 0: xnnpack").get_attribute("aria-expanded") == "false"
    tab.keyboard.press("ArrowDown")
    assert "Why not xnnpack" in tab.locator("#facts").inner_text()


def test_the_reason_shows_on_hover_and_on_focus(tab: Any) -> None:
    tab.click("#fold")
    reason = "aten.atan.default is not in the backend's operator table"
    item(tab, "delegate 0: xnnpack").focus()
    item(tab, "aten.atan.default").hover()
    assert reason in tab.locator("#tip").inner_text()
    tab.mouse.move(2, 2)
    assert not tab.locator("#tip").is_visible()
    item(tab, "delegate 0: xnnpack").focus()
    tab.keyboard.press("ArrowDown")
    assert reason in tab.locator("#tip").inner_text()


def test_what_is_sought_is_found_inside_closed_boxes(tab: Any, pages: Path) -> None:
    tab.goto(f"{pages.as_uri()}/net.html")
    tab.click("#fold")
    tab.fill("#find", "layers.2.second")
    assert tab.locator("#found").inner_text() == "1 match"
    tab.keyboard.press("Enter")
    assert tab.locator("#found").inner_text() == "1 of 1"
    assert "layers.2.second" in tab.locator("#facts").inner_text()
    assert tab.locator("#drawing .chosen").is_visible()
    tab.fill("#find", "")
    tab.click("#fold")
    for name in ("atan_default_2", "gt_scalar", "cond", "atan_default"):  # from the one that was found, and on
        tab.click("#left-next")
        assert f"\n{name}\n" in tab.locator("#facts").inner_text()


def test_five_thousand_operators_are_usable(browser: Any, pages: Path) -> None:
    tab = browser.new_page()
    tab.goto(f"{pages.as_uri()}/long.html")
    assert tab.locator("#drawing .item").count() < 150
    start = time.monotonic()
    tab.click("#open")
    assert tab.locator("#drawing .item").count() > 5000
    tab.fill("#find", "atan_default_1200")
    tab.keyboard.press("Enter")
    assert "atan_default_1200" in tab.locator("#facts").inner_text()
    tab.click("#fold")
    assert tab.locator("#drawing .item").count() < 150
    assert time.monotonic() - start < 20, "seconds; on an idle machine about 2"
    tab.close()
