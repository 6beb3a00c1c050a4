"""Writes docs/newest.md: what breaks with the newest releases of the tools that constraints.txt pins.

python docs/newest.py               # each tool but torch, alone, beside what is installed
python docs/newest.py NAME ...      # only these: the lines of the others stay; `torch` downloads gigabytes
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = Path(__file__).with_name("newest.md")
#: Where the releases are installed, a folder each.
FOLDER: Final = ROOT / "out" / "newest"
#: Seconds that a tool's tests have.
TIME_LIMIT: Final = 1800
#: Tool -> the tests that use it most.
TESTS: Final = {
    "torch": ["core/tests/test_pipeline.py", "tests/test_example_backend.py", "tests/frozen"],
    "torchao": ["core/tests/quantization/test_flow.py", "core/tests/quantization/test_annotator.py"],
    "coremltools": ["plugins/coreml/tests/blob", "plugins/coreml/tests/test_plugin.py"],
    "ethos-u-vela": ["plugins/ethosu/tests/test_plugin.py", "plugins/ethosu/tests/compiler"],
    "tosa-tools": ["toolkit/tests/tosa/test_reference.py"],
    "onnxruntime-qnn": ["plugins/qnn/tests/test_plugin.py", "plugins/qnn/tests/compiler/test_validator.py"],
    "openvino": ["plugins/openvino/tests/test_plugin.py", "plugins/openvino/tests/test_library.py"],
}
HEAD: Final = """# The newest releases of what is pinned

Written by `make newest`, which `.ci/weekly` runs. Do not edit.

[constraints.txt](../constraints.txt) and [requirements-vendors.txt](../requirements-vendors.txt) pin the releases that
the tests pass with, and say why. For this page the newest release of each tool that this Python can install is laid
before the pinned one, one tool at a time, and the tests that use it most run (`docs/newest.py` has the list). What
fails with the pinned release, too, on the same machine, is left out. `make newest NEWEST=torch` tries PyTorch, whose
download is gigabytes.

| tool | pinned | newest | tests | what breaks |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Outcome:
    """The tests of one run: the number that passed, why others were skipped, and the failed ones with their reasons."""

    passed: int
    skipped: list[str]
    failures: dict[str, str]


def main(names: list[str]) -> int:
    """Try the tools, and write the page; the exit code is 0: a break is news, and no fault of ours."""
    unknown = sorted(set(names) - TESTS.keys())
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(TESTS)}")
    lines = kept()
    for name in names or [name for name in TESTS if name != "torch"]:
        lines[name] = tried(name)
        print(lines[name], flush=True)
        ordered = [lines[name] for name in TESTS if name in lines]
        PAGE.write_text(HEAD + "\n".join([*ordered, ""]), "utf-8")
    return 0


def kept() -> dict[str, str]:
    """The lines of the page as it is, by tool."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    return {found[1]: found[0] for found in re.finditer(r"^\| ([a-z-]+) \| (?!pinned|---).*$", text, re.MULTILINE)}


def pinned(name: str) -> str:
    """The version that the tests pass with."""
    texts = [(ROOT / file).read_text("utf-8") for file in ("constraints.txt", "requirements-vendors.txt")]
    return re.findall(rf"^{re.escape(name)}==([^; \n]+)", "\n".join(texts), re.MULTILINE)[0]


def tried(name: str) -> str:
    """The line of a tool: its newest release is installed, and the tests run."""
    before, folder = pinned(name), FOLDER / name
    line = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--upgrade", "--target"]
    more = [] if name == "torch" else ["--no-deps"]
    done = subprocess.run([*line, str(folder), *more, name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"| {name} | {before} | | | cannot be installed: {short(done.stderr.strip().splitlines()[-1])} |"
    after = installed(name, folder)
    if after == before:
        return f"| {name} | {before} | {after} | | nothing: the newest is pinned |"
    if imported(name, str(folder)) != after:
        sys.exit(f"{folder} does not come before the pinned {name}")
    found = tested(TESTS[name], str(folder))
    again = tested([*found.failures], "") if found.failures else found
    broken = {test: reason for test, reason in found.failures.items() if test not in again.failures}
    counts = f"{found.passed} passed, {len(broken)} failed, {len(found.skipped)} skipped"
    reasons = [f"`{test.rpartition('/')[2]}`: {reason}" for test, reason in broken.items()]
    # A plugin that refuses the release skips its tests.
    reasons += [f"skipped: {reason}" for reason in dict.fromkeys(found.skipped)]
    told = "<br>".join([*reasons[:5], *([f"and {len(reasons) - 5} more"] if len(reasons) > 5 else [])])
    return f"| {name} | {before} | {after} | {counts} | {told or 'nothing'} |"


def installed(name: str, folder: Path) -> str:
    """The version of a distribution in a folder."""
    stem = re.sub(r"[-_.]+", "_", name)
    found = {re.sub(r"[-.]+", "_", path.name.split("-")[0]): path.name for path in folder.glob("*.dist-info")}
    return found[stem].removesuffix(".dist-info").partition("-")[2]


def imported(name: str, before: str) -> str:
    """The version of a distribution that a process with a folder before all others finds."""
    code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
    line = [sys.executable, "-c", code]
    return subprocess.run(line, env=beside(before), capture_output=True, text=True, check=True).stdout.strip()


def beside(before: str) -> dict[str, str]:
    """The environment with a folder before all others on Python's path."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [before, os.environ.get("PYTHONPATH", "")]))}


def tested(tests: list[str], before: str) -> Outcome:
    """Run tests with a folder before all others on the path."""
    report = FOLDER / f"report-{os.getpid()}.xml"
    report.unlink(missing_ok=True)
    line = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    try:
        done = subprocess.run(
            [*line, *tests],
            cwd=ROOT,
            env=beside(before),
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        return Outcome(0, [], {tests[0]: f"took longer than {TIME_LIMIT} seconds"})
    if not report.exists():
        return Outcome(0, [], {tests[0]: f"the tests died with exit code {done.returncode}"})
    passed, skipped, failures = 0, list[str](), dict[str, str]()
    for case in ET.parse(report).getroot().iter("testcase"):
        fault = next((item for kind in ("failure", "error") for item in case.iter(kind)), None)
        if fault is not None:
            reason = (fault.get("message") or "no message").splitlines()[0]
            failures[f"{case.get('file') or tests[0]}::{case.get('name')}"] = short(reason)
        elif (without := case.find("skipped")) is not None:
            skipped.append(short(without.get("message") or "no message"))
        else:
            passed += 1
    return Outcome(passed, skipped, failures)


def short(text: str) -> str:
    """A text for a cell of the table."""
    clean = " ".join(text.replace("|", "\\|").replace("<", "&lt;").split()).replace(str(ROOT), "")
    return clean if len(clean) <= 160 else f"{clean[:157]}..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
