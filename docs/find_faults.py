"""Writes docs/faults.md: which case of the conformance suite finds which of the seeded faults.

python docs/find_faults.py            # all of them: some ten minutes
python docs/find_faults.py NAME ...   # only these; prints, writes nothing
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance" / "tests"))

from seeded import FAULTS, Finding, find

PAGE = Path(__file__).with_name("faults.md")
HEAD = """# Seeded faults, and what finds them

Written by `python docs/find_faults.py`. Do not edit.

Each line is a backend with one fault (`conformance/tests/faulty`), built on the `reference` backend or on XNNPACK.
`delegatekit conform faulty`, at its default settings, ran the cases of what is broken up to the first that found it.

| fault | what is wrong | found by | verdict |
|---|---|---|---|
"""


def main(names: list[str]) -> int:
    """Run the suite against each fault; returns the exit code: 1 if one was not found."""
    rows: list[tuple[str, Finding | None]] = []
    chosen = names or list(FAULTS)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for name, finding in zip(chosen, threads.map(_find, chosen), strict=True):
            rows.append((name, finding))
            said = f"{finding.case}: {finding.outcome.detail:.100}" if finding else "NOT FOUND"
            print(f"{name}: {said}", flush=True)
    missed = [name for name, finding in rows if finding is None]
    if not names:
        text = HEAD + "".join(_row(name, finding) for name, finding in rows)
        PAGE.write_text(text + f"\n{len(rows) - len(missed)} of {len(rows)} found.\n", "utf-8")
    return bool(missed)


def _find(name: str) -> Finding | None:
    with TemporaryDirectory() as folder:
        return find(FAULTS[name], Path(folder))


def _row(name: str, finding: Finding | None) -> str:
    found = f"`{finding.case}` | {finding.outcome.verdict.value}" if finding else "**not found** | "
    return f"| {name} | {FAULTS[name].what} ({FAULTS[name].base}) | {found} |\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
