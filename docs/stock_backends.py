"""The conformance suite over ExecuTorch's own backends, beside ours on the same cases: writes docs/stock-backends.md.

python docs/stock_backends.py                  # run all that compile and run here, then write the page
python docs/stock_backends.py --from FOLDER    # write the page from runs that are in a folder, as NAME.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from delegatekit.plugins import get_backend

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "stock-backends.md"
RUNS: Final = ROOT / "out" / "stock-conformance"
#: ExecuTorch's backends, and ours that are measured on the same cases.
PAIRS: Final[Mapping[str, str]] = {
    f"executorch.{name}": name for name in ("xnnpack", "vulkan", "coreml", "ethosu", "qnn", "openvino")
}
SELECTION: Final = "operators/*/float32"
COMMAND: Final = f"delegatekit conform run NAME --quick --jobs 1 --no-stock --select '{SELECTION}' --json NAME.json"
RIGHT: Final = ("delegated", "partly", "nothing_delegated")
#: Letters of an explanation that the page shows.
_LONGEST: Final = 150


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the suite where asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, help="a folder with finished runs")
    folder = parser.parse_args(arguments).folder
    if folder is None:
        folder = RUNS
        folder.mkdir(parents=True, exist_ok=True)
        for stock, own in PAIRS.items():
            if _works(stock):
                for name in (stock, own):
                    _run(name, folder / f"{name}.json")
    pairs = [(_read(folder, stock), _read(folder, own)) for stock, own in PAIRS.items() if _has(folder, stock, own)]
    PAGE.write_text(page(pairs), "utf-8")


def _works(name: str) -> bool:
    backend = get_backend(name)
    return backend.compiler_availability().available and backend.runtime_availability().available


def _run(name: str, report: Path) -> None:
    command = [sys.executable, "-m", "delegatekit", "conform", "run", name, "--quick", "--jobs", "1", "--no-stock"]
    more = ["--select", SELECTION, "--json", str(report), "--resume", str(report.with_suffix(".resume"))]
    done = subprocess.run([*command, *more], check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: conform ended with exit code {done.returncode}")


def _has(folder: Path, *names: str) -> bool:
    return all((folder / f"{name}.json").is_file() for name in names)


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text("utf-8"))


def page(pairs: Sequence[tuple[Any, Any]]) -> str:
    """The page of pairs of reports: of ExecuTorch's backend, and of ours."""
    lines = [
        "# ExecuTorch's own backends under the suite",
        "",
        "Written by `make stock-conformance`. Do not edit.",
        "",
        "The conformance suite over the partitioners and compilers of the `executorch` wheel, which the plugin",
        "[delegatekit-executorch-backends](../plugins/executorch/README.md) brings, beside ours on the same",
        "cases: the quick profile, float32. Programs reach ExecuTorch's partitioners in our dialect, in which",
        "more is constant than in its own export, and which decomposes some operators otherwise: not every fault",
        "occurs in ExecuTorch's own pipeline. So does the core compile all constants into delegates, where",
        "XnnpackPartitioner leaves those of arithmetic outside: the run errors of `executorch.xnnpack` that were",
        "looked at are of results without dimensions, and do not occur in ExecuTorch's own pipeline, nor does",
        "the error of the bicubic upsampling, which is not explained.",
        "",
        "```sh",
        COMMAND,
        "```",
        "",
        "Right are examples whose results are within the suite's tolerance, by how much of them the backend ran.",
        "Wrong is any other result, known faults of ours included; what could not be lowered, loaded or run",
        "although the backend took it is counted as failed.",
        "",
        "| backend | examples | right: all in delegates | part of it | nothing | cases with a wrong result | failed "
        "| crashed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for report in (report for pair in pairs for report in pair):
        lines.append(_row(report))
    for stock, _ in pairs:
        lines += ["", *_faults(stock)]
    for stock, _ in pairs[:1]:
        told = ", ".join(f"{name} {version}" for name, version in stock["versions"].items())
        lines += ["", "## Versions", "", told]
    return "\n".join(lines) + "\n"


def _row(report: Any) -> str:
    summary, name = report["summary"], report["backend"]["name"]
    correct, verdicts = summary["correct"], summary["verdicts"]
    failed = sum(verdicts.get(kind, 0) for kind in ("lowering error", "load error", "run error", "contract broken"))
    crashed = sum(verdicts.get(kind, 0) for kind in ("crash", "timeout"))
    cells = (summary["examples"], *(correct[kind] for kind in RIGHT), verdicts.get("wrong result", 0), failed, crashed)
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _faults(report: Any) -> list[str]:
    """A row for each class of faults of one backend, the most frequent first."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case in report["cases"]:
        for fault in case["faults"]:
            key = fault["verdict"], _class(fault["detail"])
            found[key].append(case["tags"]["operator"])
    rows = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    name = report["backend"]["name"]
    lines = [f"## {name}", "", "| verdict | what is said | faults | operators |", "|---|---|---|---|"]
    for (verdict, told), operators in rows:
        most = [f"`{operator}`" for operator, _ in Counter(operators).most_common(4)]
        more = f" and {len(set(operators)) - 4} more" if len(set(operators)) > 4 else ""
        lines.append(f"| {verdict} | {told} | {len(operators)} | {', '.join(most)}{more} |")
    return lines


def _class(detail: str) -> str:
    """What faults of one kind have in common of their explanation."""
    if "NaN, or none" in detail:
        return "NaN where the reference has none, or the other way round"
    if "infinities where" in detail:
        return "infinities where the reference has none, or the other way round"
    if "relative error" in detail:
        return "an error above the tolerance"
    text = " ".join(detail.split()).replace("|", "\\|")
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " ..."


if __name__ == "__main__":
    main()
