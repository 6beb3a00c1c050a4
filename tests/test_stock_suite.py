"""ExecuTorch's own operator suite, run through our pipeline: tests/stock_suite."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")

SCRIPT = Path(__file__).parent / "stock_suite" / "run.py"


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("delegatekit_stock_suite_run", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for themselves there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def some(suite: ModuleType) -> Any:
    """The outcomes of some operators by flow and file: one process, which imports the suite once."""
    quantized = ["linear", "convtranspose1d"]
    return suite.run(
        {
            suite.FLOAT: ["relu", "prelu", "mean", "avgpool3d", "trunc"],
            suite.QUANTIZED[0]: quantized,
            suite.QUANTIZED[2]: quantized,
        }
    )


def test_some_operators_in_float(suite: ModuleType, some: Any) -> None:
    files = some[suite.FLOAT]
    total = suite.total(files)
    assert not total.failures and not total.counts["failed"]
    for name in ("relu", "prelu"):  # stock fails in three tests of prelu
        assert files[name].tests["failed"] == 0
        assert files[name].counts["delegated"] == sum(files[name].counts.values()) >= 3
        assert files[name].delegates == files[name].counts["delegated"] and not files[name].partly
    assert files["mean"].counts["delegated"] >= 30  # stock: none
    assert files["avgpool3d"].counts["delegated"] == 17  # stock: none
    assert files["trunc"].counts["delegated"] == 4  # stock: none
    assert total.lowest is not None and total.lowest > 86  # a mean whose terms cancel; stock's lowest is 73.7
    assert all((files[name].lowest or 999) > suite.STOCK_LOWEST_ELSEWHERE - 1 for name in files if name != "mean")


def test_some_operators_in_int8(suite: ModuleType, some: Any) -> None:
    static, dynamic = suite.QUANTIZED[0], suite.QUANTIZED[2]
    for flow in (static, dynamic):
        total = suite.total(some[flow])
        assert [failure for failure in total.failures if "feature_sizes" not in failure] == []
    assert some[static]["linear"].quantized == some[static]["linear"].counts["delegated"] == 5
    assert some[static]["convtranspose1d"].quantized == some[static]["convtranspose1d"].counts["delegated"] == 14
    assert some[dynamic]["linear"].quantized == 4  # of 5: one has a single input feature
    lowest = some[static]["linear"].lowest  # None: all results are those of the quantized model in eager, bit for bit
    assert lowest is None or lowest > 50


def test_what_the_suite_finds_is_counted(suite: ModuleType) -> None:
    """Results that are wrong, processes that end and errors of the suite are failures, whatever pytest says."""
    ran: dict[str, Any] = {
        "result": "SUCCESS",
        "error": "",
        "delegates": 1,
        "delegated_ops": {"aten.relu.default": 1},
        "fallback_ops": {},
        "sqnr": ["exact"],
        "error_max": [0.0],
        "reasons": {},
        "refused": "",
    }
    name = {"file": "relu", "flow": "f"}

    def test(test: str, outcome: str, *subtests: dict[str, Any], why: str = "") -> list[dict[str, Any]]:
        begin = {**name, "test": test, "event": "begin"}
        return [begin, {**begin, "event": "end", "outcome": outcome, "why": why, "subtests": list(subtests)}]

    records = [
        *test("fine", "passed", ran, {**ran, "sqnr": [120.5], "error_max": [1e-6], "fallback_ops": {"aten.sin": 1}}),
        *test("alone", "passed", {**ran, "delegates": 0, "reasons": {"aten.sin.default": "not in the table"}}),
        *test("nobody", "passed", {**ran, "delegates": 0, "sqnr": [], "error_max": [], "refused": "no kernel"}),
        *test("wrong", "failed", {**ran, "result": "OUTPUT_MISMATCH_FAIL", "error": "AssertionError: far off"}),
        *test("left out", "skipped", {**ran, "result": "SKIPPED"}),
        *test("broken", "failed", why="the suite's own"),
        {**name, "test": "crash", "event": "begin"},
    ]
    outcome = suite.read(map(json.dumps, records))["f"]["relu"]
    assert outcome.counts == {"delegated": 2, "runtime": 1, "refused": 1, "failed": 3, "skipped": 1}
    assert outcome.partly == 1
    assert (outcome.lowest, outcome.error_max) == (120.5, 1e-6)
    assert outcome.failures == [
        "wrong: OUTPUT_MISMATCH_FAIL: AssertionError: far off",
        "broken: the suite's own",
        "crash: the process ended",
    ]
    assert "| relu |  | 2 | 1 | 1 | 1 | 3 | 120.5 | 1.0e-06 | sin |" in suite.table({"f": {"relu": outcome}}, "f")


def test_a_wrong_lowering_is_found(suite: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite sees our files: one that computes something else fails."""
    (tmp_path / "sitecustomize.py").write_text(
        "import copy\n"
        "def lower(program, **options):\n"
        "    import torch\n"
        "    program = copy.deepcopy(program)\n"
        "    for node in program.graph.nodes:\n"
        "        if node.target is torch.ops.aten.relu.default:\n"
        "            node.target = torch.ops.aten.neg.default\n"
        "    return original(program, **options)\n"
        "import delegatekit\n"
        "original = delegatekit.lower\n"
        "delegatekit.lower = lower\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *sys.path]))
    outcome = suite.run([suite.FLOAT], ["relu"])[suite.FLOAT]["relu"]
    assert outcome.counts["failed"] == 3 and "OUTPUT_MISMATCH_FAIL" in outcome.failures[0]


def test_an_unknown_operator_is_refused() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "nonsense"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no file test_nonsense.py" in done.stderr


@pytest.mark.slow
def test_all_operators_in_float(suite: ModuleType) -> None:
    files = suite.run([suite.FLOAT])[suite.FLOAT]
    total = suite.total(files)
    assert total.failures == [] and total.tests["passed"] >= 412
    assert total.counts["delegated"] >= 616 > suite.STOCK_DELEGATED
    assert total.counts["refused"] == 0
    for name, outcome in files.items():
        if outcome.lowest is None:
            continue
        # From other inputs than stock's. Where stock delegates nothing, there is a mean whose 120 terms cancel to a
        # thousandth: the error is one unit in the last place of the terms.
        least = 73.7 if suite.STOCK_FILES.get(name) == 0 else suite.STOCK_LOWEST_ELSEWHERE - 1.0
        if outcome.lowest <= least:
            # XNNPACK has other kernels for other processors: stock's, from the same inputs, on this one decide.
            both = suite.run([suite.FLOAT], [name], with_stock=True)
            stock = both[suite.FLOAT.removeprefix(suite.STOCK_PREFIX)]
            assert stock[name].lowest <= least, (name, outcome.where)
            assert not list(suite.worse(both[suite.FLOAT], stock, by=0.5))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [0, 1, 2], ids=["per-channel", "per-tensor", "dynamic"])
def test_all_operators_in_int8(suite: ModuleType, kind: int) -> None:
    total = suite.total(suite.run([suite.QUANTIZED[kind]])[suite.QUANTIZED[kind]])
    assert total.failures == []
    assert 0 < total.quantized <= total.counts["delegated"]
