"""Runs ExecuTorch's own operator suite through DelegateKit, and reports the outcomes, file by file.

    python tests/stock_suite/run.py                            # float, all operators: about two minutes
    python tests/stock_suite/run.py --flow all                 # and the int8 flows
    python tests/stock_suite/run.py relu conv2d --stock        # two files, the wheel's own flow beside ours
    python tests/stock_suite/run.py --pipeline                 # through ExecuTorch's pipeline, with our partitioner

The suite is in the executorch wheel; `stock_suite_plugin.py` says what is ours in it. A test has subtests, each a model
of its own, which end as

* delegated: XNNPACK computes some or all of it, in the stock runtime, within the suite's tolerances of eager;
* runtime: nothing is worth a delegate; the stock runtime's own operators computed it, compared in the same way;
* refused: neither XNNPACK nor the stock runtime has such an operator, and the lowering says so;
* skipped: the suite skips it: invalid models, 3-d convolutions and the operators that the runtime lacks;
* failed.

"Stock" are the delegated subtests of the wheel's own float flow, where they are known to be fewer than the file has.
"Signal to noise" is the least of all delegated subtests, against eager; outputs without any error are "exact". The
suite's tests of special values and of operators in place skip themselves. The command fails if a subtest fails or a
process dies.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FLOAT = "delegatekit_xnnpack"
QUANTIZED = tuple(
    f"{FLOAT}_{kind}" for kind in ("static_int8_per_channel", "static_int8_per_tensor", "dynamic_int8_per_channel")
)
STOCK_PREFIX = "delegatekit_"
_ALL = "**all**"
OUTCOMES = ("delegated", "runtime", "refused", "skipped", "failed")

#: The wheel's float flow, executorch 1.5.1, run once as a whole: subtests that passed and had a delegate.
STOCK_DELEGATED = 350
#: The same by operator file, where it is known that the flow does not delegate all of the file.
# fmt: off
STOCK_FILES = dict.fromkeys(
    [
        "adaptive_avgpool3d", "adaptive_maxpool1d", "adaptive_maxpool2d", "adaptive_maxpool3d", "amax", "amin",
        "argmax", "argmin", "avgpool1d", "avgpool3d", "conv3d", "convtranspose3d", "elu", "embedding",
        "embedding_bag", "expand", "floor_divide", "index_select", "log10", "log1p", "log2", "masked_fill",
        "maxpool1d", "maxpool3d", "mean", "median", "round", "select", "split", "square", "squeeze", "threshold",
        "trunc", "upsample_nearest2d"
    ],
    0,
) | {
    "adaptive_avgpool1d": 1,
    "convtranspose2d": 8,
    "index_put": 20,
    "linear": 5,
    "slice": 8,
    "transpose": 13,
    "unsqueeze": 4,
}
# fmt: on
#: Its lowest signal to noise ratio in dB but for gelu with approximate="tanh", which has 73.7.
STOCK_LOWEST_ELSEWHERE = 125.7


@dataclass
class Outcome:
    """The outcomes of the subtests of an operator's file, or of all, in one flow."""

    counts: Counter[str] = field(default_factory=Counter)
    #: Subtests with a delegate in which the runtime's own operators do the rest.
    partly: int = 0
    delegates: int = 0
    #: Delegated subtests of which something is quantized.
    quantized: int = 0
    tests: Counter[str] = field(default_factory=Counter)
    #: In dB, of delegated subtests; None if all are exact.
    lowest: float | None = None
    where: str = ""
    error_max: float = 0.0
    #: "test 0 1", the second output of its first subtest -> its ratio.
    ratios: dict[str, float] = field(default_factory=dict)
    #: Operator -> why XNNPACK leaves it, and how often.
    left: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Sum up, for the row of all files."""
        for mine, yours in ((self.counts, other.counts), (self.tests, other.tests), (self.left, other.left)):
            mine.update(yours)  # type: ignore[arg-type]
        self.partly += other.partly
        self.delegates += other.delegates
        self.quantized += other.quantized
        self.error_max = max(self.error_max, other.error_max)
        self.failures += other.failures
        if other.lowest is not None and (self.lowest is None or other.lowest < self.lowest):
            self.lowest, self.where = other.lowest, other.where


Outcomes = dict[str, dict[str, Outcome]]


def suite_folder() -> Path:
    """The operator tests in the wheel. Raises SystemExit if executorch is not installed."""
    found = importlib.util.find_spec("executorch")
    for place in (found.submodule_search_locations or ()) if found is not None else ():
        folder = Path(place) / "backends" / "test" / "suite" / "operators"
        if folder.is_dir():
            return folder
    raise SystemExit("ExecuTorch's test suite is not installed: pip install executorch==1.5.1")


def run(
    flows: Sequence[str] | Mapping[str, Iterable[str]],
    files: Iterable[str] = (),
    *,
    with_stock: bool = False,
    pipeline: bool = False,
    output: Any = None,
    keep: Path | None = None,
) -> Outcomes:
    """Run the suite in a process of its own: the outcomes by flow and operator file ("relu"; without files, all).

    Flows may each have their own files, as a mapping; `files` is then left out.
    With `pipeline`, ExecuTorch's own pipeline lowers, with our partitioner, and not `delegatekit.lower`.
    `output` is where pytest's own report goes, None for here; `keep` is a file to which the plugin's lines are added
    while the tests run. Raises SystemExit for a file that the suite does not have.
    """
    folder = suite_folder()
    chosen = {flow: sorted(names) for flow, names in flows.items()} if isinstance(flows, Mapping) else {}
    names = sorted({name for each in chosen.values() for name in each}) if chosen else list(files)
    paths = [folder / f"test_{name}.py" for name in names]
    for path in paths:
        if not path.exists():
            raise SystemExit(f"the suite has no file {path.name}; it has {', '.join(sorted(_names(folder)))}")
    selected = list(flows)
    if with_stock:
        selected += [flow.removeprefix(STOCK_PREFIX) for flow in flows]
    with tempfile.TemporaryDirectory() as scratch:
        results, settings = keep or Path(scratch) / "results.jsonl", Path(scratch) / "pytest.ini"
        results.touch()
        before = len(results.read_text().splitlines())
        settings.write_text("[pytest]\nmarkers =\n    timeout: of the suite\n")
        environment = {
            "DELEGATEKIT_VERIFY": "1",
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "STOCK_SUITE_RESULTS": str(results.absolute()),
            "STOCK_SUITE_WITH_STOCK": "1" if with_stock else "",
            "STOCK_SUITE_PIPELINE": "1" if pipeline else "",
            "STOCK_SUITE_FILES": json.dumps(chosen) if chosen else "",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH", "")))),
        }
        command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(folder.parent)]
        command += ["-p", "no:cacheprovider", "-p", "stock_suite_plugin", "-q", "-W", "ignore", "--tb=no", "-rN"]
        command += ["--show-capture=no", "-m", " or ".join(f"flow_{flow}" for flow in selected)]
        command += [str(path) for path in paths or [folder]]
        ended = subprocess.run(command, env=environment, stdout=output, stderr=output, check=False)
        outcomes = read(results.read_text().splitlines()[before:])
    if ended.returncode not in (0, 1) and not outcomes:
        raise SystemExit(f"pytest ended with {ended.returncode}")
    return outcomes


def _names(folder: Path) -> list[str]:
    return [path.stem.removeprefix("test_") for path in folder.glob("test_*.py")]


def read(lines: Iterable[str]) -> Outcomes:
    """The plugin's lines of JSON, summed up by flow and operator file."""
    outcomes: Outcomes = {}
    begun: dict[tuple[str, str, str], None] = {}
    for record in map(json.loads, lines):
        key = (record["flow"], record["file"], record["test"])
        if record["event"] == "begin":
            begun[key] = None
            continue
        begun.pop(key, None)
        outcome = outcomes.setdefault(record["flow"], {}).setdefault(record["file"], Outcome())
        outcome.tests[record["outcome"]] += 1
        found = [_count(outcome, record, number, subtest) for number, subtest in enumerate(record["subtests"])]
        if record["outcome"] == "failed" and "failed" not in found:  # in the suite's own code
            outcome.counts["failed"] += 1
            outcome.failures.append(f"{record['test']}: {record['why']}")
    for flow, file, test in begun:
        outcome = outcomes.setdefault(flow, {}).setdefault(file, Outcome())
        outcome.tests["failed"] += 1
        outcome.counts["failed"] += 1
        outcome.failures.append(f"{test}: the process ended")
    return outcomes


def _last(lines: Iterable[str]) -> list[str]:
    """The lines of the last run of each test."""
    last: dict[tuple[str, str, str], list[str]] = {}
    for line in lines:
        record = json.loads(line)
        key = (record["flow"], record["file"], record["test"])
        last[key] = [line] if record["event"] == "begin" else [*last.get(key, []), line]
    return [line for kept in last.values() for line in kept]


def _count(outcome: Outcome, record: Mapping[str, Any], number: int, subtest: Mapping[str, Any]) -> str:
    kind = "failed"
    if subtest["result"] == "SKIPPED":
        kind = "skipped"
    elif subtest["result"] in ("SUCCESS", "SUCCESS_UNDELEGATED"):
        kind = "refused" if subtest.get("refused") else "delegated" if subtest["delegates"] else "runtime"
    outcome.counts[kind] += 1
    if kind == "failed":
        outcome.failures.append(f"{record['test']}: {subtest['result']}: {subtest['error']}")
    if kind in ("delegated", "runtime", "refused"):
        outcome.left.update(subtest.get("reasons", {}).items())
    if kind != "delegated":
        return kind
    outcome.delegates += subtest["delegates"]
    outcome.quantized += bool(subtest.get("quantized"))
    outcome.partly += bool(subtest["fallback_ops"])
    outcome.error_max = max([outcome.error_max, *(error for error in subtest["error_max"] if error is not None)])
    for index, ratio in enumerate(subtest["sqnr"]):
        outcome.ratios[f"{record['test']} {number} {index}"] = math.inf if ratio == "exact" else ratio
        if isinstance(ratio, float) and (outcome.lowest is None or ratio < outcome.lowest):
            outcome.lowest, outcome.where = ratio, f"{record['file']}: {record['test']}"
    return kind


def total(files: Mapping[str, Outcome]) -> Outcome:
    """All files in one."""
    result = Outcome()
    for outcome in files.values():
        result.add(outcome)
    return result


def worse(ours: Mapping[str, Outcome], stock: Mapping[str, Outcome], by: float = 3.0) -> Iterator[str]:
    """Outputs that are delegated on both sides, from the same inputs, with ours noisier by this many dB."""
    for file in sorted(ours.keys() & stock.keys()):
        theirs = stock[file].ratios
        for name, ratio in ours[file].ratios.items():
            if ratio is not None and theirs.get(name) is not None and ratio < theirs[name] - by:
                yield f"{file}: {name}: {ratio:.1f} dB, stock {theirs[name]:.1f} dB"


def table(outcomes: Outcomes, flow: str) -> str:
    """A flow's outcomes as Markdown, one row for each operator file; for float with what is known of the wheel's."""
    stock = {**STOCK_FILES, _ALL: STOCK_DELEGATED} if flow == FLOAT else {}
    lines = [
        f"| operator | stock: delegated | {' | '.join(OUTCOMES)} | least signal to noise, dB | largest error "
        "| left to the runtime |",
        "|---" * (len(OUTCOMES) + 5) + "|",
    ]
    files = dict(sorted(outcomes.get(flow, {}).items()))
    for name, outcome in (*files.items(), (_ALL, total(files))):
        counts = " | ".join(str(outcome.counts[kind] or "") for kind in OUTCOMES)
        left = ", ".join(sorted({_short(operator) for operator, _ in outcome.left})) if name in files else ""
        error = f"{outcome.error_max:.1e}" if outcome.error_max else ""
        lines.append(f"| {name} | {stock.get(name, '')} | {counts} | {_decibels(outcome)} | {error} | {left} |")
    return "\n".join(lines)


def _short(operator: str) -> str:
    return operator.removeprefix("aten.").removesuffix(".default")


def _decibels(outcome: Outcome) -> str:
    if not outcome.counts["delegated"]:
        return ""
    return "exact" if outcome.lowest is None else f"{outcome.lowest:.1f}"


def summary(outcomes: Outcomes) -> str:
    """One row for each flow, as Markdown."""
    lines = [
        "| flow | tests: passed | skipped | failed | subtests: "
        + " | ".join(OUTCOMES)
        + " | delegated whole | delegated and quantized | least signal to noise, dB |",
        "|---" * (len(OUTCOMES) + 7) + "|",
    ]
    for flow, files in outcomes.items():
        outcome = total(files)
        tests = " | ".join(str(outcome.tests[kind]) for kind in ("passed", "skipped", "failed"))
        counts = " | ".join(str(outcome.counts[kind]) for kind in OUTCOMES)
        whole = outcome.counts["delegated"] - outcome.partly
        lines.append(f"| {flow} | {tests} | {counts} | {whole} | {outcome.quantized} | {_decibels(outcome)} |")
    return "\n".join(lines)


def _jsonable(outcome: Outcome) -> dict[str, Any]:
    left = [{"operator": name, "reason": reason, "count": count} for (name, reason), count in outcome.left.items()]
    return {**vars(outcome), "left": left}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="operator files: relu conv2d (default: all)")
    parser.add_argument("--flow", nargs="*", default=[FLOAT], help=f"of {FLOAT}, {', '.join(QUANTIZED)}; or all")
    parser.add_argument("--stock", action="store_true", help="run the wheel's own flow on the same inputs, too (slow)")
    parser.add_argument("--pipeline", action="store_true", help="lower by ExecuTorch's pipeline, with our partitioner")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    parser.add_argument("--keep", type=Path, help="append the results of each test to this file while the tests run")
    parser.add_argument("--show", type=Path, nargs="+", help="run nothing, show what --keep kept; of a test, the last")
    parser.add_argument("--reasons", action="store_true", help="print why operators are left to the runtime")
    arguments = parser.parse_args()
    flows = [FLOAT, *QUANTIZED] if arguments.flow == ["all"] else arguments.flow
    if arguments.show:
        outcomes = read(_last([line for path in arguments.show for line in path.read_text().splitlines()]))
        flows = list(outcomes)
    else:
        outcomes = run(
            flows,
            arguments.files,
            with_stock=arguments.stock,
            pipeline=arguments.pipeline,
            output=sys.stderr,
            keep=arguments.keep,
        )
    if arguments.json:
        content = {flow: {n: _jsonable(o) for n, o in files.items()} for flow, files in outcomes.items()}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(content, indent=1))
    print(summary(outcomes))
    for flow in outcomes:
        print(f"\n{flow}\n\n{table(outcomes, flow)}")
    for flow in outcomes:
        stock = outcomes.get(flow.removeprefix(STOCK_PREFIX), {}) if flow.startswith(STOCK_PREFIX) else {}
        for line in worse(outcomes[flow], stock):
            print(f"noisier than stock in {flow}: {line}")
    failed = False
    for flow, files in outcomes.items():
        outcome = total(files)
        if arguments.reasons:
            print(f"\n{flow}: left to the runtime")
            for (operator, reason), count in outcome.left.most_common():
                print(f"  {count:3} {operator}: {reason}")
        for failure in outcome.failures:
            failed = failed or flow in flows
            print(f"FAILED in {flow}: {failure}", file=sys.stderr)
    return int(failed or not outcomes)


if __name__ == "__main__":
    sys.exit(main())
