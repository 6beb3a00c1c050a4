"""JSON and zip files from outside, damaged by structure: each loads and can be shown, or ends with an error of ours."""

from __future__ import annotations

import io
import json
import random
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import damage
import pytest
import torch
from rich.console import Console
from torch import nn

import delegatekit
from delegatekit.files.exported import graphs_of, load_exported
from delegatekit.pte.estimates import Estimates
from delegatekit.pte.manifest import Manifest
from delegatekit.pte.reader import naming
from delegatekit_api import FormatError
from delegatekit_conformance import report
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.run import BackendFacts, Run
from delegatekit_conformance.runner.journal import Finished
from delegatekit_toolkit.json_text import parse_object
from delegatekit_tools.bundles import Case, read_bundle
from delegatekit_tools.etrecord import read_etrecord
from delegatekit_tools.model_explorer.graphs import drawings
from delegatekit_tools.placement.measurements import Candidate, Measurements, Tuned, UnitTimes
from delegatekit_tools.profile.origins import Origins
from delegatekit_tools.sweep import LeftOut, Row, Sweep
from delegatekit_tools.sweep.results import Results

#: CPU seconds that a file may take, for any damage.
SECONDS = 20.0


@dataclass(frozen=True)
class Format:
    """A valid file, its mutation, and its reader."""

    name: str
    content: bytes
    change: Callable[[bytes, random.Random], bytes]
    use: Callable[[Path], object]


def by_json(content: bytes, chance: random.Random) -> bytes:
    return damage.changed_json(json.loads(content), chance)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.atan(self.layer(x).relu()) + 1


FAULT = Outcome(Verdict.MISMATCH, "detail", "example", "backend", 1, 1, 1, "", ("why",), 1.0, 0.1, snippet="x = 1")
TAGS = {"room": "operators", "operator": "aten.add.Tensor", "dtype": "float32"}
RUN = Run(
    BackendFacts("name", "distribution", "1.0"),
    (
        CaseResult("operators/a", TAGS, {Verdict.MISMATCH: 1, Verdict.DELEGATED: 3}, (FAULT,), (FAULT,), ("why",)),
        CaseResult("operators/b", TAGS, {Verdict.DELEGATED: 1}, latencies=((1.0, 2.0),), closeness=0.5),
        CaseResult("graphs/c", {"room": "graphs"}, {Verdict.REFUSED: 2}, reasons=("why",), expected="known"),
    ),
    options={"key": "value"},
    started="2026-01-01T00:00:00Z",
    seconds=3.0,
    versions={"torch": "2"},
    machine={"platform": "x"},
)
ROW = Row(
    "key", "one", "chip", "compiles", "", "maker", {"depth": 1}, "int8", 2, 5, 7, (LeftOut("aten.sin", 2, "no"),), 0.1
)
TUNED = Tuned(
    {"one": "delegatekit-one 1"},
    {"one": {"level": 1}},
    (Candidate("one alone", ("one",), 0.1), Candidate("mixture", ("one",), 0.05, {"forward": {"add": "one"}}, ("x",))),
    {"u": UnitTimes("add", 2, {"one": 0.1, "": 0.2})},
    {"one": 0.01},
    {"two": "why"},
)
CONTEXT = Context("name", PROFILES["quick"])


def show_report(path: Path) -> None:
    run = report.read_json(path)
    report.html([run, RUN])
    report.diff(RUN, run).print(Console(file=io.StringIO()))
    report.print_console(Console(file=io.StringIO()), run)
    for write in (report.write_json, report.write_junit, report.write_markdown, report.write_csv):
        write(path.with_suffix(".out"), run)


def show_finished(path: Path) -> None:
    Finished(path, CONTEXT, "delegatekit-api").close()


def show_sweep(path: Path) -> None:
    found = Sweep(tuple(Results(path).rows.values()))
    assert str(found) and found.html("sweep")


def show_measurements(path: Path) -> None:
    found = Measurements.load(path)
    assert str(found) or not found.programs
    found.units_text()
    found.save(path)


def show_debug_map(path: Path, calls: tuple[str, ...]) -> None:
    origins = Origins(parse_object(path.read_bytes(), str(path)), "forward", calls)
    for position, call in enumerate(calls):
        origins.of_instruction(position)
        if call.startswith("delegate "):
            origins.of_operators(position, [1])


def show_bundle(path: Path) -> None:
    with naming(path):
        read_bundle(path)


def show_parts(path: Path) -> None:
    data = path.read_bytes()
    Manifest.from_json(data)
    Estimates.from_json(data)


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Format]:
    """A valid file of each format."""
    folder = tmp_path_factory.mktemp("valid")
    inputs = (torch.ones(2, 4),)
    exported = torch.export.export(Net().eval(), inputs)
    lowered = delegatekit.lower(exported, backends=["reference"], skip=["aten.atan.default"])
    beside = {
        folder / "net.json": json.dumps(lowered.debug_map()),
        folder / "net.etrecord": delegatekit.etrecord(lowered),
    }
    lowered.save(folder / "net.pte", beside=beside)
    torch.export.save(exported, folder / "net.pt2")
    delegatekit.bundle(folder / "net.pte", {"forward": [Case(inputs)]}).save(folder / "net.bpte")
    report.write_json(folder / "run.json", RUN)
    Measurements("wall", {"system": "x"}, {"digest": TUNED}).save(folder / "measured.json")
    Results(folder / "rows.jsonl").add(ROW)
    finished = Finished(folder / "cases.jsonl", CONTEXT, "delegatekit-api")
    for result in RUN.results:
        finished.add(result)
    finished.close()
    debug_map = json.loads((folder / "net.json").read_bytes())
    calls = tuple(item["calls"] for item in debug_map["forward"]["instructions"])
    manifest = {"producer": "x", "delegates": [{"method": "forward", "index": 0, "outputs": 1}], "axes": {"x": [[]]}}
    layer = {"name": "x", "operator": "y", "latency": 1.0, "cycles": 1, "memory": {"sram": 1}}
    estimates = {"forward": [{"source": "x", "latency": 1.0, "memory": {"sram": 1}, "layers": [layer]}]}

    def show_record(path: Path) -> None:
        path.with_suffix(".pte").write_bytes((folder / "net.pte").read_bytes())
        drawings(path.with_suffix(".pte"))
        read_etrecord(path).of("forward", calls)

    def show_program(path: Path) -> None:
        graphs_of(path)
        load_exported(path)

    found = [
        Format("net.json", b"", by_json, lambda path: show_debug_map(path, calls)),
        Format("run.json", b"", by_json, show_report),
        Format("measured.json", b"", by_json, show_measurements),
        Format("parts.json", json.dumps(manifest | estimates).encode(), by_json, show_parts),
        Format("rows.jsonl", b"", damage.changed_lines, show_sweep),
        Format("cases.jsonl", b"", damage.changed_lines, show_finished),
        Format("net.etrecord", b"", damage.changed_zip, show_record),
        Format("net.pt2", b"", damage.changed_zip, show_program),
        Format("net.bpte", b"", damage.changed_bytes, show_bundle),
    ]
    return {
        each.name: Format(each.name, each.content or (folder / each.name).read_bytes(), each.change, each.use)
        for each in found
    }


NAMES = (
    "net.json", "run.json", "measured.json", "parts.json", "rows.jsonl", "cases.jsonl", "net.etrecord", "net.pt2",
    "net.bpte",
)  # fmt: skip


def outcome(each: Format, number: int, folder: Path) -> str:
    """The outcome of a mutant: "loads" or "refused". Raises any other error than ours."""
    data = each.change(each.content, random.Random(f"{each.name} {number}"))
    path = folder / each.name
    path.write_bytes(data)
    start = time.process_time()
    try:
        each.use(path)
        found = "loads"
    except (FormatError, InputError) as error:
        assert error.where or each.name in str(error), error
        assert len(str(error)) < 2000
        found = "refused"
    assert time.process_time() - start < SECONDS
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_valid_file_loads(formats: Mapping[str, Format], name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(formats[name].content)
    formats[name].use(path)


def tried(each: Format, numbers: range, folder: Path) -> None:
    found, wrong = set(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # archives with names twice are what zipfile warns of
        for number in numbers:
            try:
                found.add(outcome(each, number, folder))
            except Exception as error:
                wrong.append(f"{number}: {type(error).__name__}: {error}"[:300])
    assert not wrong, f"{len(wrong)} of {len(numbers)}: {wrong[:5]}"
    assert found == ({"loads"} if each.name == "parts.json" else {"loads", "refused"})


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_loads_or_is_refused(formats: Mapping[str, Format], name: str, tmp_path: Path) -> None:
    tried(formats[name], range(40), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("name", NAMES)
def test_many_damaged_files_load_or_are_refused(
    formats: Mapping[str, Format], name: str, part: int, tmp_path: Path
) -> None:
    tried(formats[name], range(40 + 280 * part, 320 + 280 * part), tmp_path)


def test_a_long_trace_in_a_record_is_searched_in_one_pass(tmp_path: Path, formats: Mapping[str, Format]) -> None:
    # 'File "' without an end, 360 KB of it, once took minutes.
    each = formats["net.etrecord"]
    members = damage.members_of(each.content)
    name = "edge_dialect_exported_program/forward"
    program = json.loads(dict(members)[name])
    for node in chain(program["graph_module"]["graph"]["nodes"]):
        node["metadata"]["stack_trace"] = 'File "' * 60_000
    changed: Any = [(key, json.dumps(program).encode() if key == name else data) for key, data in members]
    path = tmp_path / each.name
    path.write_bytes(damage.archive_of(changed, 0))
    start = time.process_time()
    each.use(path)
    assert time.process_time() - start < SECONDS
