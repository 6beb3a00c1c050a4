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
from delegatekit_toolkit.number_text import human_size
from delegatekit_tools.page import graph
from delegatekit_tools.page.graph import MODULE, RANGE, Box, Item, Leaf, leaves, nested
from delegatekit_tools.page.tables import Cell, Number, table

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


def test_the_cards_have_the_figures_of_the_report(lowered: delegatekit.LoweredProgram, page: str) -> None:
    words = " ".join(Parsed(page).words)
    shares = lowered.shares
    assert f"{shares.delegated.operators:,} of {shares.total.operators:,}" in words
    assert f"{shares.delegated.macs:,} of {shares.total.macs:,}" in words
    assert human_size(len(lowered.buffer)) in words
    (method,) = data_of(page)["methods"]
    macs = next(each for each in method["measures"] if each["unit"] == "MACs")
    assert (
        sum(value or 0 for value in macs["values"]) == sum(item[8] for item in method["operators"]) == shares.total.macs
    )


def test_crossings_are_counted_where_data_changes_hands() -> None:
    flat = delegatekit.lower(Flat().eval(), X, backends=["xnnpack"])  # say, relu | atan | add
    words = " ".join(Parsed(delegatekit.html(flat)).words)
    assert re.search(r"Crossings\s+2\s", words) and "1 to the runtime, 1 to delegates" in words


def test_paths_begin_at_the_folder_that_is_known(page: str) -> None:
    words = " ".join(Parsed(page).words)
    assert re.search(r"(?<!/)test_delegation_page\.py:\d+", words) and __file__ not in page


def test_the_memory_chart_names_its_largest_values(page: str) -> None:
    chart = page[page.index('class="memory"') :]
    assert ">192 B<" in chart and 'class="axis-x"' in chart
    assert re.search(r'class="name".*?<text[^>]*>[\w. ]+ 32 B<', chart, re.DOTALL)


def test_the_compilers_estimate_is_a_measure_of_the_nodes_that_its_layers_name() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    program = delegatekit.lower(delegatekit.quantize(model, [X], backend="ethosu"), X, backends=["ethosu"])
    (delegate,) = program.methods["forward"].delegates
    assert delegate.estimate is not None
    data = data_of(delegatekit.html(program))
    (method,) = data["methods"]
    measure = method["measures"][0]
    assert measure["unit"] == "s" and measure["delegates"] == {"0": delegate.estimate.latency}
    named = {data["texts"][item[2]] for item, time in zip(method["operators"], measure["values"], strict=True) if time}
    assert named & {"aten.linear.default", "aten.relu.default"}


def test_long_tables_fold_by_hundreds() -> None:
    rows: list[list[Cell]] = [[Number(row), f"name {row}"] for row in range(250)]
    parsed = Parsed("".join(table(["number", "name"], rows)))
    assert [("open" in part) for part in parsed.of("details")] == [True, False, False]
    assert "201 to 250 of 250" in parsed.words and len(parsed.of("tr")) == 250 + 3
    assert not Parsed("".join(table(["number", "name"], rows[:5]))).of("details")


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
@pytest.mark.parametrize("width", [360, 768, 1440])
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


def test_the_graph_is_one_stop_of_the_tab_key_and_zooms_by_keys(tab: Any) -> None:
    active = "document.activeElement.getAttribute('aria-label')"
    tab.locator("#fit").focus()
    tab.keyboard.press("Tab")
    assert str(tab.evaluate(active)).startswith("input: x")
    before = item(tab, "input: x").bounding_box()["width"]
    tab.keyboard.press("+")
    assert item(tab, "input: x").bounding_box()["width"] == pytest.approx(1.25 * before, rel=1e-3)
    assert str(tab.evaluate(active)).startswith("input: x")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('#facts') !== null")


def test_the_panel_begins_with_a_summary_that_leads_to_the_worst(tab: Any) -> None:
    panel = tab.locator("#facts")
    assert "xnnpack: 3 operators, 100.0 % of the MACs" in panel.inner_text()
    panel.get_by_role("button", name="atan").first.click()
    assert "Why not xnnpack" in panel.inner_text() and item(tab, "aten.atan.default").is_visible()
    panel.get_by_role("button", name="Summary").click()
    assert "Left to the runtime: 1" in panel.inner_text()


def test_the_graph_is_colored_by_a_measure_with_a_legend(tab: Any) -> None:
    tab.click("#open")
    box = item(tab, "aten.linear.default").bounding_box()
    pixel = f"""() => {{
        const canvas = document.getElementById("canvas"), sharp = devicePixelRatio;
        const area = canvas.getBoundingClientRect();
        const x = ({box["x"]} + 3 - area.left) * sharp, y = ({box["y"]} + {box["height"]} / 2 - area.top) * sharp;
        return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data];
    }}"""
    plain = tab.evaluate(pixel)
    tab.select_option("#color", label="multiply-accumulates")
    assert "64 MACs" in tab.locator("#legend").inner_text()
    tab.wait_for_timeout(100)
    hot = tab.evaluate(pixel)
    assert plain[3] == hot[3] == 255 and plain != hot
    assert hot[:3] == [0x8A, 0x15, 0x38]  # the only one, so the hottest: --hot of the style sheet
    assert "multiply-accumulates: 64 MACs" in str(item(tab, "aten.linear.default").get_attribute("aria-label"))


def test_long_tables_are_filtered_and_sorted(browser: Any, pages: Path) -> None:
    tab = browser.new_page()
    tab.goto(f"{pages.as_uri()}/long.html")
    section = tab.locator("#delegates .long")
    assert section.locator("details").count() == 13 and section.locator("details[open]").count() == 1
    section.locator("input").fill("long 7")  # in no row
    assert section.locator("output").inner_text() == "0 of 1,251"
    section.locator("input").fill("")
    assert section.locator("details:visible").count() == 13
    head = section.get_by_role("button", name="delegate").first
    head.click()
    assert section.locator("tbody td").first.inner_text() == "1,250"
    assert section.locator("th").first.get_attribute("aria-sort") == "descending"
    head.click()
    assert section.locator("tbody td").first.inner_text() == "0"
    tab.close()


def test_fit_shows_all_of_five_thousand_operators_in_columns(browser: Any, pages: Path) -> None:
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.goto(f"{pages.as_uri()}/long.html")
    tab.click("#open")
    tab.click("#fit")
    sizes = "(view) => [view.scrollWidth, view.clientWidth, view.scrollHeight, view.clientHeight]"
    across, width, down, height = tab.locator("#view").evaluate(sizes)
    assert across <= width and down <= height
    drawn = tab.evaluate(
        "() => { const r = document.getElementById('drawing').getBoundingClientRect(); return [r.width, r.height]; }"
    )
    assert drawn[0] > width / 2 and drawn[1] > height / 2, "it fills the view, not a thin line of it"
    assert not tab.locator("#map").is_visible()
    tab.click("#larger")
    tab.click("#larger")
    assert tab.locator("#map").is_visible()
    place = tab.locator("#map").bounding_box()
    tab.mouse.click(place["x"] + place["width"] - 12, place["y"] + place["height"] - 12)
    assert tab.evaluate("() => document.getElementById('view').scrollLeft") > 100
    tab.close()


#: Sixty frames of a gesture, each after the browser has shown the one before; gives the number that were drawn.
GESTURES = {
    "zoom": """view.dispatchEvent(new WheelEvent("wheel", { ctrlKey: true, deltaY: at < 30 ? -50 : 50,
        clientX: area.left + 400, clientY: area.top + 300, bubbles: true, cancelable: true }))""",
    "drag": """view.scrollBy(at < 30 ? 9 : -9, at < 30 ? 6 : -6)""",
}


def test_five_thousand_operators_zoom_and_drag_at_thirty_frames_a_second(browser: Any, pages: Path) -> None:
    """CPU time of the page's thread, which other load of the machine does not change: scripts, layout and painting."""
    tab = browser.new_page(viewport={"width": 1440, "height": 900})
    tab.goto(f"{pages.as_uri()}/long.html")
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))

    tab.click("#open")
    tab.wait_for_timeout(300)
    for name, gesture in GESTURES.items():
        if name == "drag":
            tab.click("#larger")
            tab.click("#larger")
            tab.wait_for_timeout(300)
        start = seconds()
        frames = tab.evaluate(
            f"""async () => {{
                const view = document.getElementById("view"), area = view.getBoundingClientRect();
                view.frames.length = 0;
                for (let at = 0; at < 60; at++) {{ {gesture}; await new Promise(requestAnimationFrame); }}
                return view.frames.length;
            }}"""
        )
        assert frames > 40, name  # at the edge there is nothing to draw anew
        assert (seconds() - start) / frames < 1 / 30, name
    tab.close()
