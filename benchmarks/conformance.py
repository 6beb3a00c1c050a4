"""Time that the conformance suite takes: cases and examples of each room, wall time, examples per minute.

python benchmarks/conformance.py                          # xnnpack, default profile, two processes
python benchmarks/conformance.py reference --profile quick --jobs 4 --select operators
python benchmarks/conformance.py --from run.json          # of a run that `delegatekit conform --json` wrote
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

from delegatekit_conformance import Run, Session, Settings
from delegatekit_conformance.report import read_json


def main() -> None:
    """Run the suite and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", nargs="?", default="xnnpack")
    parser.add_argument("--profile", default="default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--select", action="append", default=[])
    parser.add_argument("--from", dest="file", type=Path)
    arguments = parser.parse_args()
    print(table(read_json(arguments.file) if arguments.file else measured(arguments)))


def measured(arguments: argparse.Namespace) -> Run:
    """A run of the suite; faults do not matter here."""
    settings = Settings(
        arguments.backend, select=tuple(arguments.select), profile=arguments.profile, jobs=arguments.jobs
    )
    return Session(settings).run()


def table(run: Run) -> str:
    """Rooms with their cases, examples and seconds of the workers; and the whole, by wall time."""
    rooms: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
    for result in run.results:
        row = rooms[result.tags["room"]]
        row[0] += 1
        row[1] += result.examples
        row[2] += result.seconds
    lines = ["| room | cases | examples | workers' seconds |", "|---|---|---|---|"]
    lines += [
        f"| {room} | {cases:.0f} | {examples:.0f} | {seconds:.0f} |"
        for room, (cases, examples, seconds) in rooms.items()
    ]
    examples = sum(result.examples for result in run.results)
    lines.append(
        f"\n{run.backend.name}, profile {run.profile}: {len(run.results)} cases, {examples} examples in "
        f"{run.seconds / 60:.1f} minutes: {60 * examples / max(run.seconds, 1e-9):.0f} examples per minute."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
