"""benchmarks/language_models.py: its models, products, figures and page."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("executorch", reason="the stock runtime (executorch) is not installed")
pytest.importorskip("transformers")

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(FOLDER)
    import language_models  # type: ignore[import-not-found]

    yield language_models
    patch.undo()


@pytest.fixture(scope="module")
def folder(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import random_language_models  # type: ignore[import-not-found]

    found = tmp_path_factory.mktemp("tiny")
    random_language_models.make("tiny", found / "model")
    return found


@pytest.fixture(scope="module")
def order(benchmark: Any, folder: Path) -> Any:
    """16 tokens after 24 of ours, in float32."""
    tokenizer = benchmark._tokenizer(folder)
    prompt = benchmark.prompt_of(tokenizer, 24)
    tokens = tuple(tokenizer.encode(prompt).ids)
    place = folder / "ours"
    place.mkdir()
    return benchmark.Order(
        "ours", "float32", str(folder / "model"), str(place), 64, prompt, tokens, count=16, threads=1, repeats=2
    )


def test_each_token_has_a_text_of_its_own(benchmark: Any, folder: Path) -> None:
    tokenizer = benchmark._tokenizer(folder)
    texts = benchmark._text(tokenizer, range(tokenizer.get_vocab_size()))
    assert tokenizer.get_vocab_size() == 512 == len(set(texts)) and all(text and text.isascii() for text in texts)


def test_products_generate_the_text_of_transformers(benchmark: Any, folder: Path, order: Any) -> None:
    import text_products  # type: ignore[import-not-found]

    made = text_products.make(order)
    assert made["cpu"] > 0 and made["bytes"] == Path(order.place, "model.pte").stat().st_size
    with torch.no_grad():  # whose end puts back what a product's process sets
        found = {name: text_products.run(replace(order, product=name)) for name in ("eager", "ours", "engine")}
    tokenizer = benchmark._tokenizer(folder)
    wanted, *others = (benchmark._text(tokenizer, item["tokens"]) for item in found.values())
    assert len(order.tokens) == 24 and len(set(wanted)) > 1
    assert benchmark._agreement(others, wanted) == "16 of 16"
    for item in found.values():
        speeds = benchmark.figures([item], 1, 24)
        assert list(speeds) == list(benchmark._SPEEDS) and all(speed > 0 for speed in speeds.values())
        assert (item["peak"] > 0 and "executorch" in item["versions"]) or item is found["eager"]


def test_the_time_of_a_token_is_the_least_of_all_runs(benchmark: Any) -> None:
    # (CPU, clock) of three tokens: two runs of one process, one of another.
    runs = [[(2.0, 4.0), (0.5, 1.0), (0.25, 2.0)], [(3.0, 5.0), (0.25, 3.0), (0.75, 1.0)]]
    found = [
        {"times": runs, "first": (7.0, 9.0)},
        {"times": [[(8.0, 2.0), (1.0, 4.0), (1.0, 4.0)]], "first": (6.0, 8.0)},
    ]
    names = list(benchmark._SPEEDS)
    assert benchmark.figures(found, 1, 100) == dict(zip(names, (50.0, 4.0, 6.0), strict=True))
    assert benchmark.figures(found, 2, 100) == dict(zip(names, (50.0, 1.0, 8.0), strict=True))


def test_texts_are_compared_up_to_the_first_difference(benchmark: Any) -> None:
    assert benchmark._agreement([["a", "b", "c"], ["a", "x", "c"]], ["a", "b", "c"]) == "1 of 3"


def test_the_page_has_a_place_for_the_tables(benchmark: Any) -> None:
    page = benchmark.PAGE.read_text(encoding="utf-8")
    written = benchmark.replaced(page, "NEW\n")
    assert "NEW" in written and benchmark.replaced(written, "NEW\n") == written
    with pytest.raises(SystemExit, match="has no lines"):
        benchmark.replaced("other", "NEW")


def test_a_process_that_fails_is_told_by_its_last_line(benchmark: Any) -> None:
    failing = [sys.executable, "-c", "raise SystemExit('the reason')"]
    with pytest.raises(benchmark._FailedError, match="the reason"):
        benchmark._result(failing)
    printing = [sys.executable, "-c", f"print('text'); print({json.dumps(json.dumps({'a': 1}))})"]
    assert benchmark._result(printing) == {"a": 1}


@pytest.mark.sweep
def test_a_table_of_stock_and_ours(tmp_path: Path) -> None:
    import subprocess

    command = [sys.executable, str(FOLDER / "language_models.py"), "--models", "tiny", "--folder", str(tmp_path)]
    command += ["--products", "ours", "stock", "eager", "--rounds", "1", "--threads", "1"]
    for _ in range(2):  # the second time from what is kept
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=580)
        assert not done.returncode, done.stderr
        rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and line.endswith("64 of 64 |")]
        assert sum("float32" in row for row in rows) == 3, done.stdout
    assert "making its file" not in done.stderr and "round" not in done.stderr
