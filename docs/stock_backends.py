"""The conformance suite over ExecuTorch's own backends, beside ours on the same cases: writes docs/stock-backends.md.

python docs/stock_backends.py                  # run all that compile and run here, then write the page
python docs/stock_backends.py --from FOLDER    # write the page from runs that are in a folder, as NAME.json
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path[:0] = [path for path in (str(Path(__file__).parent),) if path not in sys.path]

from stock_pipeline import ALIKE, LEFT, OTHER, RIGHT, faults, verdict  # noqa: E402

from delegatekit.plugins import backends, get_backend  # noqa: E402

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "stock-backends.md"
RUNS: Final = ROOT / "out" / "stock-conformance"


@dataclass(frozen=True)
class Cases:
    """A part of the suite, and the title of its table."""

    title: str
    selection: str
    #: What the files of its runs end in, before ".json".
    ending: str = ""
    #: More about the cases, behind their names.
    more: str = ""


@dataclass(frozen=True)
class Comparison:
    """One of ExecuTorch's backends, and ours that is measured on the same cases."""

    stock: str
    own: str = ""
    cases: Cases = Cases("Operators in float32", "operators/*/float32")
    #: The part of the cases: one of so many. Backends that take long get a sample, always the same.
    sample: int = 1
    #: An option of ExecuTorch's backend, "key=value"; none if empty.
    option: str = ""
    #: CPU seconds of an example; the suite's own limit if 0.
    seconds: int = 0

    def more(self, name: str) -> tuple[str, ...]:
        """The options of a run beside those that all have."""
        shard = ("--shard", f"1/{self.sample}") if self.sample > 1 else ()
        limit = ("--timeout", str(self.seconds)) if self.seconds and name == self.stock else ()
        return (*shard, *limit, *(("--option", self.option) if self.option and name == self.stock else ()))

    def file(self, folder: Path, name: str, kind: str = "") -> Path:
        """The file of a run, or what was found out of it."""
        part = f".{self.sample}" if self.sample > 1 else ""
        return folder / f"{name}{self.cases.ending}{part}{kind}.json"


QUANTIZED: Final = Cases("Quantized networks", "quantized/*", ".quantized", ", each by all schemes of the backend")
COMPARED: Final = (
    Comparison("executorch.xnnpack", "xnnpack"),
    Comparison("executorch.coreml", "coreml"),
    Comparison("executorch.vulkan", "vulkan", sample=16),
    Comparison("executorch.webgpu", "vulkan", sample=16),
    Comparison("executorch.openvino", sample=16),
    Comparison("executorch.qnn", "qnn", sample=16),
    Comparison("executorch.xnnpack", "xnnpack", QUANTIZED, sample=4),
    Comparison("executorch.ethosu", "ethosu", QUANTIZED, sample=4),
    # Its quantizer exports 405 patterns for each model: 100 seconds for a linear layer.
    Comparison("executorch.coreml", "coreml", QUANTIZED, sample=8, option="target=iOS17", seconds=400),
    Comparison("executorch.vulkan", "vulkan", QUANTIZED, sample=4),
)
COMMAND: Final = "delegatekit conform run NAME --quick --jobs 1 --no-stock --select 'CASES' --json NAME.json"
CORRECT: Final = ("delegated", "partly", "nothing_delegated")
#: Names, numbers and dtypes of one example in an explanation.
_PARTICULAR: Final = re.compile(r"\b\w+_\d+\b|\b\d+\b|torch\.[a-z]+\d+|\[[^]]*\]|(?<!\w)'[^']*'")
#: The folders of a source file.
_FOLDERS: Final = re.compile(r"(?<=\s)/(?:[\w.-]+/)+")
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
        for compared in COMPARED:
            if _works(compared.stock):
                for name in (compared.stock, compared.own):
                    if _works(name) and not compared.file(folder, name).is_file():
                        _run(name, compared, compared.file(folder, name))
    for compared in COMPARED:
        if (report := compared.file(folder, compared.stock)).is_file():
            _try_in_stock(report, compared.file(folder, compared.stock, ".own"))
    PAGE.write_text(page(folder), "utf-8")


def _works(name: str) -> bool:
    if name not in backends(check=False):
        return False
    backend = get_backend(name)
    return backend.compiler_availability().available and backend.runtime_availability().available


def _run(name: str, compared: Comparison, report: Path) -> None:
    command = [sys.executable, "-m", "delegatekit", "conform", "run", name, "--quick", "--jobs", "1", "--no-stock"]
    more = ["--select", compared.cases.selection, *compared.more(name), "--json", str(report)]
    done = subprocess.run([*command, *more, "--resume", str(report.with_suffix(".resume"))], check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{name}: conform ended with exit code {done.returncode}")


def _try_in_stock(report: Path, made: Path) -> None:
    """Run the examples of a run's faults in ExecuTorch's own pipeline, in processes of their own."""
    tool = Path(__file__).with_name("stock_pipeline.py")
    subprocess.run([sys.executable, str(tool), str(report), str(made)], check=True)


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def page(folder: Path) -> str:
    """The page of the reports in a folder."""
    found = [compared for compared in COMPARED if compared.file(folder, compared.stock).is_file()]
    lines = [
        "# ExecuTorch's own backends under the suite",
        "",
        "Written by `make stock-conformance`. Do not edit.",
        "",
        "The conformance suite over the partitioners and compilers of the `executorch` wheel, which the plugin",
        "[delegatekit-executorch-backends](../plugins/executorch/README.md) brings, beside ours on the same",
        "cases: the quick profile.",
        "",
        "```sh",
        COMMAND,
        "```",
        "",
        "`1 of 16` are the cases of `--shard 1/16`, always the same. Right are examples whose results are within the",
        "suite's tolerance, by how much of them the backend ran. Wrong is any other result, known faults of ours",
        "included; what could not be lowered, loaded or run although the backend took it is counted as failed.",
    ]
    for cases in dict.fromkeys(compared.cases for compared in found):
        lines += ["", *_table(folder, cases, [compared for compared in found if compared.cases == cases])]
    lines += [
        "",
        "Programs reach ExecuTorch's partitioners in our dialect, in which more is constant than in its own export,",
        "and which decomposes some operators otherwise. So the example of each fault is run in ExecuTorch's own",
        "pipeline, too (`torch.export`, `to_edge_transform_and_lower` with its partitioner, its runtime; delegates",
        "that it does not have on this host run in our engine): the last columns say for how many it ends alike, is",
        "another fault, is right, or has no delegate there, because its partitioner takes nothing of ExecuTorch's form",
        "of the program. Core ML's, Vulkan's and Ethos-U's delegates run in our engine here, whose refusals of a",
        "program that a device may well run count as failed. [found.md](found.md) has the classes that were looked at,",
        "with a snippet each.",
    ]
    for compared in found:
        reports = (_read(compared.file(folder, compared.stock, kind)) for kind in ("", ".own"))
        lines += ["", *_faults(compared, *reports)]
    reports = (_read(compared.file(folder, compared.stock)) for compared in found)
    versions = {name: text for report in reports for name, text in report["versions"].items()}
    lines += ["", "## Versions", "", ", ".join(f"{name} {version}" for name, version in versions.items())]
    return "\n".join(lines) + "\n"


def _table(folder: Path, cases: Cases, compared: Sequence[Comparison]) -> list[str]:
    """The counts of one part of the suite, a row for each backend."""
    lines = [
        f"## {cases.title}",
        "",
        f"CASES are `{cases.selection}`{cases.more}.",
        "",
        "| backend | cases | examples | right: all in delegates | part of it | nothing | cases with a wrong result "
        "| failed | crashed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    files = {path: item for item in compared for name in (item.stock, item.own) if (path := item.file(folder, name))}
    return [*lines, *(_row(_read(path), item) for path, item in files.items() if path.is_file())]


def _row(report: Any, compared: Comparison) -> str:
    summary, name = report["summary"], report["backend"]["name"]
    correct, verdicts = summary["correct"], summary["verdicts"]
    failed = sum(verdicts.get(kind, 0) for kind in ("lowering error", "load error", "run error", "contract broken"))
    crashed = sum(verdicts.get(kind, 0) for kind in ("crash", "timeout"))
    part = f"1 of {compared.sample}" if compared.sample > 1 else "all"
    name += f" ({compared.option})" if compared.option and name == compared.stock else ""
    counts = (summary["examples"], *(correct[kind] for kind in CORRECT), verdicts.get("wrong result", 0))
    return f"| {name} | {part} | {' | '.join(map(str, (*counts, failed, crashed)))} |"


def _faults(compared: Comparison, report: Any, own: Mapping[str, str]) -> list[str]:
    """A row for each class of faults of one backend, the most frequent first."""
    operators: dict[tuple[str, str], list[str]] = defaultdict(list)
    ends: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for key, fault in faults(report):
        kind = fault["verdict"], _class(fault["detail"])
        operators[kind].append(key.split("/")[1].split(" ")[0])
        ends[kind][verdict(fault, own[key])] += 1
    lines = [f"## {compared.stock}: {compared.cases.title.lower()}", ""]
    total: Counter[str] = sum(ends.values(), Counter())
    ended = (
        f"{total[ALIKE]} end alike, {total[OTHER]} otherwise, {total[RIGHT]} are right, {total[LEFT]} have no delegate"
    )
    if not total:
        return [*lines, "No faults."]
    lines += [f"Of {total.total()} faults, {ended} in ExecuTorch's own pipeline.", ""]
    lines += ["| verdict | what is said | cases | faults | alike | another | right | no delegate |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for kind, names in sorted(operators.items(), key=lambda item: (-len(item[1]), item[0])):
        most = [f"`{operator}`" for operator, _ in Counter(names).most_common(4)]
        more = f" and {len(set(names)) - 4} more" if len(set(names)) > 4 else ""
        counts = " | ".join(str(ends[kind][end] or "") for end in (ALIKE, OTHER, RIGHT, LEFT))
        lines.append(f"| {kind[0]} | {kind[1]} | {', '.join(most)}{more} | {len(names)} | {counts} |")
    return lines


def _class(detail: str) -> str:
    """What faults of one kind have in common of their explanation."""
    if "NaN, or none" in detail:
        return "NaN where the reference has none, or the other way round"
    if "infinities where" in detail:
        return "infinities where the reference has none, or the other way round"
    if "relative error" in detail:
        return "an error above the tolerance"
    text = _PARTICULAR.sub("...", _FOLDERS.sub("", " ".join(detail.split()))).replace("|", "\\|")
    return text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " ..."


if __name__ == "__main__":
    main()
