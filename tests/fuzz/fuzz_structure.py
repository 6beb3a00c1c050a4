"""Fuzzes by structure, in processes that may die: `python fuzz_structure.py FOLDER [--cases N] [--formats ...]`.

Each format has a worker process, one after the other, which loads each case and runs it. It is a finding if the worker
dies, if a case takes more than 5 CPU seconds or 60 seconds, if its memory grows above 2 GiB, or if anything but a
DelegateKitError is raised. Findings are written to FOLDER as files that `delegatekit run` can be tried with, and a new
worker goes on after them. FOLDER holds the `seeds` and `delegates` of `corpus.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).parent))

#: Limits of one case: seconds of CPU, seconds, bytes of memory in all; and the address space of a worker.
CPU_SECONDS, SECONDS, MEMORY, ADDRESS_SPACE = 5.0, 60.0, 2 << 30, 16 << 30
#: A run that Python can interrupt is ended after this: programs may have loops, and only `run --time-limit` ends them.
RUN_SECONDS = 2.0
#: Where a worker is: the position of the format, the number of the case, methods that ran, start in CPU seconds.
STATE = "state"
_STATE = struct.Struct("<qqqd")


class Stopped(BaseException):
    """A run took more than its time."""


def worker(folder: Path, formats: Mapping[str, tuple[int, int]]) -> None:
    """Try the cases of each format from its first number on, this many of them; `STATE` says where it is."""
    import structure
    import targets

    material = structure.Material(*(pickle.loads((folder / name).read_bytes()) for name in ("seeds", "delegates")))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _stop)
    place = os.open(folder / STATE, os.O_RDWR | os.O_CREAT)
    ran = 0
    for index, (format_, (first, count)) in enumerate(formats.items()):
        for number in range(first, first + count):
            os.pwrite(place, _STATE.pack(index, number, ran, time.process_time()), 0)
            case = structure.case(format_, number, material)
            ran += _try(targets, format_, case)
            if _peak() > MEMORY:
                raise AssertionError("memory above 2 GiB")
    os.pwrite(place, _STATE.pack(len(formats), 0, ran, time.process_time()), 0)


def _peak() -> int:
    """The most memory that this process had resident, in bytes.

    `getrusage` does not help: its figure goes on from the process that started this one, here a run of all tests.
    """
    _, _, rest = Path("/proc/self/status").read_text().partition("VmHWM:")
    return int(rest.split()[0]) << 10


def _try(targets: Any, format_: str, case: Any) -> int:
    """Load a case and run what can be run; how many methods that was, or whether a file was accepted."""
    if format_ == "etdump":
        return int(targets.read_dump(case.data[0], case.program))
    if format_ == "measurements":
        return int(targets.read_measurements(case.data[0]))
    plugins = format_ not in ("pte", "ptd", "bpte")
    program = targets.load(case.program, case.data, plugins=plugins)
    methods = targets.make_methods(program) if program is not None else []
    for method in methods:
        signal.setitimer(signal.ITIMER_REAL, RUN_SECONDS)
        try:
            for _ in range(2):
                targets.run(method, case.inputs)
        except Stopped:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            method.close()
    if case.program[4:8] == b"BP08":
        signal.setitimer(signal.ITIMER_REAL, RUN_SECONDS)
        with contextlib.suppress(Stopped):
            targets.verify(case.program)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return len(methods)


def _stop(*_: object) -> NoReturn:
    raise Stopped


def fuzz(folder: Path, counts: Mapping[str, int], seconds: float, first: int = 0) -> tuple[int, int, list[str]]:
    """Cases tried, programs that ran, and findings; of each format this many cases, one format after the other."""
    findings: list[str] = []
    left = {format_: (first, count) for format_, count in counts.items()}
    tried, ran, end = 0, 0, time.monotonic() + seconds
    while left and time.monotonic() < end and len(findings) < 20:
        (folder / STATE).write_bytes(_STATE.pack(0, 0, 0, 0.0))
        command = [sys.executable, __file__, str(folder), "--worker", json.dumps(left)]
        with (folder / "stderr").open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            why = _watch(process, folder / STATE, end)
        index, number, more, started = _STATE.unpack((folder / STATE).read_bytes())
        text = (folder / "stderr").read_text(errors="replace")[-3000:]
        if not started and why is not None:
            raise RuntimeError(text)
        ran += more
        formats = list(left)
        for done in formats[:index]:
            tried += left.pop(done)[1]
        if index < len(formats) and started:
            format_ = formats[index]
            begin, count = left[format_]
            tried += number - begin
            if why is None:
                break  # the time is over
            findings.append(f"{format_} {number}: {why}\n{text}")
            _save(folder, format_, number)
            left[format_] = number + 1, count - (number + 1 - begin)
            tried += 1
    return tried, ran, findings


def _watch(process: subprocess.Popen[bytes], state: Path, end: float) -> str | None:
    """Wait for a worker: None if it is done or the time is over, else how it ended."""
    at, since = (-1, -1), time.monotonic()
    while process.poll() is None:
        time.sleep(0.1)
        index, number, _, started = _STATE.unpack(state.read_bytes())
        now = time.monotonic()
        if (index, number) != at:
            at, since = (index, number), now
        used = _cpu_seconds(process.pid) - started if started else 0.0
        if started and (used > CPU_SECONDS or now - since > SECONDS):
            _end(process)
            return f"hangs: {used:.1f} CPU seconds, {now - since:.1f} seconds"
        if now > end:
            _end(process)
            return None
    if process.returncode == 0:
        return None
    return signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit {process.returncode}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _save(folder: Path, format_: str, number: int) -> None:
    import structure

    material = structure.Material(*(pickle.loads((folder / name).read_bytes()) for name in ("seeds", "delegates")))
    case = structure.case(format_, number, material)
    (folder / f"structure-{format_}-{number}.pte").write_bytes(case.program)
    for index, data in enumerate(case.data):
        (folder / f"structure-{format_}-{number}-{index}.ptd").write_bytes(data)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each format")
    parser.add_argument(
        "--formats", nargs="*", help="pte, ptd, bpte, etdump, measurements, kinds of blobs (default: all)"
    )
    parser.add_argument("--cases", type=int, default=1 << 40, help="cases of each format (default: no limit)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--worker", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        try:
            worker(given.folder, given.worker)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0
    faults = total = 0
    import delegates
    import structure

    for format_ in given.formats or (*structure.FILES, *delegates.FORMATS):
        cases, ran, findings = fuzz(given.folder, {format_: given.cases}, given.seconds, given.first)
        print(f"{format_}: {cases} cases, {ran} of them ran, {len(findings)} findings", flush=True)
        for finding in findings:
            print(finding, flush=True)
        faults, total = faults + len(findings), total + cases
    print(f"{total} cases by structure, {faults} findings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
