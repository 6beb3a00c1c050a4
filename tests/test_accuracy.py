"""Quantized models in their files: accurate within stated bounds, and the stock runtime gives the same bits."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("executorch", reason="the stock runtime (executorch) is not installed")
pytest.importorskip("torchao", reason="torchao is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

PATH = Path(__file__).parents[1] / "benchmarks" / "accuracy.py"


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_accuracy", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


accuracy: Any = _benchmark()
WAYS = {way.name: way for way in accuracy.ways("xnnpack")}


@pytest.fixture(scope="module")
def digits() -> Any:
    return accuracy.digits()


@pytest.fixture(scope="module")
def photos() -> Any:
    return accuracy.photos()


@pytest.fixture(scope="module")
def sentences() -> Any:
    return accuracy.sentences()


def row(task: Any, name: str) -> Any:
    """Measure, and assert what holds for every file."""
    found = accuracy.Measured(task, WAYS[name], accuracy.float_outputs(task)).row
    assert found.same, "the stock runtime gives other bits than our engine"
    assert found.delegates == 1
    return found


@pytest.mark.parametrize("name", ["int8", "int8, correct_bias", "int8-dynamic"])
def test_digits_are_told_apart_as_well_as_in_float(name: str, digits: Any) -> None:
    expected = digits.judge(accuracy.float_outputs(digits), ())["accuracy"]
    assert expected > 0.96, "the float network is badly trained"
    found = row(digits, name)
    assert found.outside == 0
    assert abs(found.measures["accuracy"] - expected) <= 0.005
    assert abs(found.eager["accuracy"] - expected) <= 0.005
    # Requantization in integers rounds single values to the neighbouring integer, eager does not.
    assert found.fidelity > 45


def test_nothing_is_calibrated_on_what_is_judged(digits: Any) -> None:
    judged = torch.cat([inputs[0].flatten(1) for inputs in digits.judged])
    calibration = torch.cat([inputs[0].flatten(1) for inputs in digits.calibration])
    assert float(torch.cdist(judged, calibration).min()) > 0
    assert not set(accuracy.PHOTOS) & set(accuracy.PICTURES)
    assert not {text for group in accuracy.SENTENCES for text in group} & set(accuracy.OTHER_SENTENCES)


def test_judges_tell_right_from_wrong(digits: Any) -> None:
    outputs = accuracy.float_outputs(digits)
    right = digits.judge(outputs, outputs)["accuracy"]
    wrong = digits.judge([output.roll(1, 1) for output in outputs], outputs)["accuracy"]
    assert right > 0.9 and wrong < 0.1
    assert accuracy.rank_correlation(torch.tensor([1.0, 2.0, 4.0, 3.0]), torch.arange(4.0)) == pytest.approx(0.8)
    assert accuracy.sqnr_db([torch.ones(4)], [torch.ones(4)]) == float("inf")
    assert accuracy.sqnr_db([torch.full((4,), 1.1)], [torch.ones(4)]) == pytest.approx(20.0, abs=1e-3)


def test_a_page_has_a_row_for_each_way(digits: Any) -> None:
    chosen = [WAYS["float"], WAYS["int8"], accuracy.Way("xnnpack", "no such scheme")]
    *rows, reason = accuracy.measure(digits, chosen, rounds=2)
    text = accuracy.page({"digits": (digits, rows, [reason])}, 2)
    assert [line.split(" | ")[1] for line in text.splitlines() if line.startswith("| xnnpack")] == ["float", "int8"]
    assert "* xnnpack no such scheme: " in text


def test_rows_that_were_not_measured_anew_stay(digits: Any) -> None:
    rows = [
        accuracy.Row(backend, scheme, {"accuracy": 0.9}, {"accuracy": 0.9}, 30.0, 40.0, 1, 0, None, size, 1.0, 1.0)
        for backend, scheme, size in (("xnnpack", "float", 1), ("coreml", "float", 2), ("vulkan", "float", 3))
    ]
    sentences = replace(digits, title="Sentences")
    old = accuracy.page(
        {"digits": (digits, rows, ["coreml int4: none", "qnn int8: no"]), "s": (sentences, rows, [])}, 2
    )
    assert accuracy.merged(old, old, ["xnnpack", "coreml", "vulkan", "qnn"]) == old
    anew = [replace(rows[1], scheme=scheme, size=1024 * 7) for scheme in ("float", "int8")]
    new = accuracy.merged(accuracy.page({"digits": (digits, anew, ["coreml int2: none"])}, 2), old, ["coreml"])
    wanted = accuracy.page({"digits": (digits, [rows[0], *anew, rows[2]], ["coreml int2: none", "qnn int8: no"])}, 2)
    assert new == wanted + "\n## Sentences" + old.partition("\n## Sentences")[2]
    with pytest.raises(ValueError, match="digits: the columns are others now"):
        accuracy.merged(old.replace("accuracy:", "top-1:"), old, ["coreml"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8, correct_bias"])
def test_the_pretrained_network_sees_on_photos_what_it_sees_in_float(name: str, photos: Any) -> None:
    assert len(photos.judged) >= 30
    found = row(photos, name)
    assert found.outside == 0
    assert found.measures["top-1"] >= 0.9
    assert found.measures["top-5"] >= 0.9
    assert found.sqnr > 17


@pytest.mark.slow
@pytest.mark.parametrize("name", ["int8-dynamic", "int8-dynamic-int4"])
def test_sentences_keep_their_order_of_likeness(name: str, sentences: Any) -> None:
    found = row(sentences, name)
    assert found.outside <= 8  # the embedding, and the mask's arithmetic
    assert found.measures["rank correlation"] >= 0.97
    assert found.measures["least cosine"] >= 0.9
