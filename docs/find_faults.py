"""Writes docs/faults.md: which case of the conformance suite finds which of the seeded faults.

python docs/find_faults.py            # all of them: about an hour
python docs/find_faults.py NAME ...   # only these: the lines of the others stay
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "tests"))

from seeded import FAULTS, Fault, Finding, find

from delegatekit_conformance.mutants.page import TITLE

PAGE = Path(__file__).with_name("faults.md")
HEAD = """# Seeded faults, and the cases that find them

Written by `python docs/find_faults.py`. Do not edit.

Each line is a correct backend, named in parentheses, with one fault added (`conformance/tests/faulty`). The suite ran
the cases that concern the fault against it, with default settings, up to the first case that found the fault.

| fault | what is wrong | found by | verdict |
|---|---|---|---|
"""


#: The backend that the faults of native code are seeded into.
NATIVE = "xnnpack"
_NOT_FOUND = "**not found**"


def main(names: list[str]) -> int:
    """Run the suite against each fault, and write the page; returns the exit code: 1 if one is not found."""
    faults = [FAULTS[name] for name in names or FAULTS]
    chosen = [(fault, fault.base or (NATIVE if fault.native else "reference")) for fault in faults]
    lines = _known_lines()
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        running = {threads.submit(find, *pair): pair for pair in chosen}
        for done in as_completed(running):
            (fault, base), finding = running[done], done.result()
            said = f"{finding.case}: {finding.outcome.detail:.100}" if finding else "NOT FOUND"
            print(f"{fault.name} ({base}): {said}", flush=True)
            lines[fault.name] = _row(fault, base, finding)
            _write(lines)  # findings are kept even if a later run fails
    return int(any(_NOT_FOUND in line for line in lines.values()))


def _write(lines: dict[str, str]) -> None:
    known = [lines[name] for name in FAULTS if name in lines]
    found = sum(_NOT_FOUND not in line for line in known)
    _, title, scores = PAGE.read_text("utf-8").partition(f"\n{TITLE}\n")
    PAGE.write_text(HEAD + "".join(known) + f"\n{found} of {len(known)} found.\n{title}{scores}", "utf-8")


def _known_lines() -> dict[str, str]:
    """The lines of the page as it is, by fault."""
    faults, _, _ = PAGE.read_text("utf-8").removeprefix(HEAD).partition(f"\n{TITLE}\n")
    lines = faults.splitlines(keepends=True)
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("|")}


def _row(fault: Fault, base: str, finding: Finding | None) -> str:
    found = f"`{finding.case}` | {finding.outcome.verdict.value}" if finding else f"{_NOT_FOUND} | "
    return f"| {fault.name} | {fault.what} ({base}) | {found} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
