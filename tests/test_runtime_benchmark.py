"""benchmarks/runtime.py: its tables, and its measurements of one model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def runtime() -> ModuleType:
    pytest.importorskip("transformers")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(FOLDER)
    import runtime  # type: ignore[import-not-found]

    patch.undo()
    return runtime  # type: ignore[no-any-return]


def test_ratios_are_ours_to_theirs(runtime: ModuleType) -> None:
    figures = {
        "ours": {"ms": 10.0, "sqnr": 120.0},
        "stock": {"ms": 20.0, "sqnr": 121.0},
        "eager": {"ms": 8.0, "sqnr": 999.0},
    }
    *_, row = runtime.latency_table({"net": figures}, ["ours", "stock", "eager", "openvino"]).splitlines()
    # An engine without support has no figures.
    assert row == "| net | 10.0 | 0.50 | 1.25 | - | 1.25 | 120 | 121 | - |"


def test_auto_is_compared_with_the_best_of_all(runtime: ModuleType) -> None:
    figures = {
        "ours": {"ms": 10.0, "sqnr": 120.0},
        "auto": {"ms": 8.4, "sqnr": 118.0, "took": "1 Xnnpack"},
        "openvino": {"ms": 8.0, "sqnr": 119.0},
    }
    header, _, row = runtime.latency_table({"net": figures}, ["ours", "auto", "openvino"]).splitlines()
    assert header.split(" | ")[2:] == [
        "ours / openvino",
        "ours / best other",
        "auto / best",
        "delegates of auto",
        "SQNR dB: ours",
        "auto",
        "openvino |",
    ]
    assert row == "| net | 10.0 | 1.25 | 1.25 | 1.05 | 1 Xnnpack | 120 | 118 | 119 |"


def test_memory_is_listed_for_engines_with_files(runtime: ModuleType) -> None:
    figures = {
        "ours": {"file": 1.0, "planned": 0.5, "process": 3.0},
        "onnxruntime": {"file": 2.0, "process": 4.0},
    }
    header, _, row = runtime.memory_table({"net": figures}, ["ours", "eager", "onnxruntime"]).splitlines()
    assert header.split(" | ")[1:3] == ["file: ours", "file: onnxruntime"]
    assert row == "| net | 1.0 | 2.0 | 0.5 | 3.0 | 4.0 |"


@pytest.mark.slow
@pytest.mark.parametrize("int8", [False, True])
def test_a_model_is_measured(int8: bool, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(FOLDER / "runtime.py"), "--models", "efficientnet-lite0", "--rounds", "3"]
    command += ["--engines", "ours", "eager", "--threads", "1", "--json", str(figures), *(["--int8"] if int8 else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert not done.returncode, done.stderr
    assert "| efficientnet-lite0 |" in done.stdout
    found = json.loads(figures.read_text())["efficientnet-lite0"]
    assert found["1"]["ours"]["ms"] < found["1"]["eager"]["ms"]
    assert found["1"]["ours"]["sqnr"] > (15 if int8 else 100)
    assert found["memory"]["ours"]["file"] < (6 if int8 else 19)
