"""The page of a sweep in a real browser: nothing is cut off, rows sort with their details."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delegatekit_tools.sweep import LeftOut, OutputErrors, Row, Sweep

#: Rows with something in each column, and a long one.
OUTPUTS = (OutputErrors("[boxes]", "float32", 640, 640, 61.5, 0.00312, 0.999987), OutputErrors("[c]", "int64", 1600, 7))
ROWS = [
    Row(
        f"k{number}",
        backend,
        target,
        "compiles",
        made_by=f"delegatekit-{backend} 0.1.0",
        options={"target": target},
        scheme="int8-dynamic",
        delegates=12,
        delegated=1200 + number,
        operators=1300,
        left_out=(LeftOut("aten.atan.default", 2, "aten.atan.default is not in the backend's operator table"),),
        estimated_seconds=0.01234 * (number % 2) or None,
        estimated_memory={"sram": 1 << 18, "flash": 1 << 24},
        file_size=(1 << 20) + (1 << 18) * number,
        wall_seconds=0.32691 / (number + 1),
        cpu_seconds=0.32725,
        outputs=OUTPUTS,
    )
    for number, (backend, target) in enumerate(
        [("xnnpack", "default"), ("ethosu", "ethos-u85-256"), ("executorch.openvino", "default")]
    )
]
ROWS.append(Row("bad", "acme", "chip", "failed", "its process crashed (SIGSEGV)"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "sweep.html").write_text(Sweep(tuple(ROWS)).html("net:make on four"), "utf-8")
    return tmp_path / "sweep.html"


@pytest.fixture(params=[360, 768, 1440])
def sized(browser: Any, path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    tab = browser.new_page(viewport={"width": request.param, "height": 900})
    tab.goto(path.as_uri())
    yield tab
    tab.close()


def test_nothing_is_cut_off(sized: Any) -> None:
    sized.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    for place in ("document.documentElement", "document.querySelector('.wide')"):
        assert sized.evaluate(f"{place}.scrollWidth - {place}.clientWidth") <= 0, place
    last = sized.locator("td[data-label=differ]").first
    assert last.inner_text().strip() == "7 of 1600" and last.is_visible()


def test_rows_sort_with_their_details_and_unknown_values_come_last(sized: Any) -> None:
    def order() -> list[str]:
        found: list[str] = sized.locator("td[data-label=backend]").all_inner_texts()
        return [name.strip() for name in found]

    if sized.locator(".sort select").is_visible():
        sized.locator(".sort select").select_option(label="here \N{UPWARDS ARROW}")
        first = order()
        sized.locator(".sort select").select_option(label="here \N{DOWNWARDS ARROW}")
    else:
        button = sized.get_by_role("button", name="here", exact=True)
        button.click()
        assert sized.locator("th[aria-sort=ascending]").inner_text() == "here"
        first = order()
        button.click()
    assert first == ["executorch.openvino", "ethosu", "xnnpack", "acme"]
    assert order() == ["xnnpack", "ethosu", "executorch.openvino", "acme"]
    assert "SIGSEGV" in sized.locator("tbody").last.inner_text()
