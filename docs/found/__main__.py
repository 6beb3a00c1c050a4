"""Faults of other projects that our lowering avoids: runs the snippet of each, and writes the page docs/found.md.

python docs/found                  # run all; exit 1 if one is fixed, or cannot be judged
python docs/found --write          # and write the observations: docs/found/observed.json and docs/found.md
python docs/found NAME ...         # some of them
python docs/found --here NAME      # one, in this process
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
sys.path[:0] = [path for path in (str(FOLDER),) if path not in sys.path]

from page import FAULTS, OBSERVED, PAGE, Fault, render  # noqa: E402

#: Exit codes of a snippet's process.
THERE: Final = 0
MENDED: Final = 3
CANNOT: Final = 4
#: Seconds that a snippet may take.
_PATIENCE: Final = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults, by the names of their files; all without one")
    parser.add_argument("--write", action="store_true", help="write the page with what was seen")
    parser.add_argument("--here", action="store_true", help="run one snippet in this process")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in FAULTS]
    if unknown:
        parser.error(f"there is no {unknown[0]}: {', '.join(FAULTS)}")
    if given.here:
        return _here(given.names[0])
    seen = json.loads(OBSERVED.read_text("utf-8")) if OBSERVED.exists() else {}
    counts = dict.fromkeys(("still there", "fixed", "cannot run here", "broken"), 0)
    for name in given.names or FAULTS:
        verdict, text = judged(FAULTS[name])
        counts[verdict] += 1
        print(f"{verdict:15} {name}: {text}", flush=True)
        if verdict == "still there":
            seen[name] = text
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    if given.write:
        known = {name: seen[name] for name in FAULTS if name in seen}
        OBSERVED.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", "utf-8")
        PAGE.write_text(render(known), "utf-8")
    return 1 if counts["fixed"] or counts["broken"] else 0


def judged(fault: Fault) -> tuple[str, str]:
    """The verdict on a fault, and what was seen, by a run in a process of its own."""
    command = [sys.executable, str(FOLDER), "--here", fault.name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "broken", f"took longer than {_PATIENCE} seconds"
    if fault.ends_by is not None and run.returncode == -fault.ends_by:
        return "still there", f"the process ends by {fault.ends_by.name}"
    said = (run.stdout.strip().splitlines() or [""])[-1]
    if run.returncode == THERE and said and fault.ends_by is None:
        return "still there", said
    if run.returncode == MENDED:
        return "fixed", f"not there any more; the page says {fault.package} {fault.version}, installed is {said}"
    if run.returncode == CANNOT:
        return "cannot run here", said
    complaint = (run.stderr.strip().splitlines() or ["no word"])[-1]
    return "broken", f"the snippet ended with exit code {run.returncode}: {complaint}"


def _here(name: str) -> int:
    """Run a snippet, print what was seen in one line; returns the exit code."""
    from importlib.metadata import PackageNotFoundError, version

    from tools import CannotRunHereError

    fault = FAULTS[name]
    try:
        installed = version(fault.package)
    except PackageNotFoundError:
        print(f"{fault.package} is not installed")
        return CANNOT
    spec = importlib.util.spec_from_file_location(name, fault.path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        seen = module.main()
    except CannotRunHereError as error:
        print(error)
        return CANNOT
    print(" ".join(seen.split()) if seen is not None else installed)
    return THERE if seen is not None else MENDED


if __name__ == "__main__":
    sys.exit(main())
