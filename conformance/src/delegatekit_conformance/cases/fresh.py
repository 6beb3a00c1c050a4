"""Runs a small script in a fresh Python process, in folders of its own, and returns its results."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delegatekit.plugins import COMPILED, DEVICES, FIRST_IMPORTS
from delegatekit_toolkit.processes import signal_name

from ..context import Context
from .base import Broken, Late

#: Wall time of a process, relative to its limit of CPU time. A rule may start two, one after the other,
#: and the runner waits longer than for these two (`runner.plan.Limits.patience`).
_PATIENCE = 2.0
#: The script finds what it is given as `given` and puts its answers into the dict `answer`.
_BEFORE = "import pickle, sys\nwith open(sys.argv[1], 'rb') as file:\n    given = pickle.load(file)\nanswer = {}\n"
#: Not all systems can limit the CPU time of a process.
_LIMIT = """
try:
    import resource
    resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds} + 5))
except (ImportError, ValueError):
    pass
"""
_AFTER = "\nwith open(sys.argv[2], 'wb') as file:\n    pickle.dump(answer, file)\n"
#: The signal that ends a process which has used up its CPU time.
_OVER = getattr(signal, "SIGXCPU", 0)


@dataclass(frozen=True)
class Fresh:
    """The results of a process."""

    answer: Mapping[str, Any]
    #: Its standard output, also by native code.
    stdout: str
    stderr: str
    #: Files left in its working, home and temporary folders: "home/.tool/state".
    files: tuple[str, ...]
    #: True if processes that it had started were still running when it ended.
    orphans: bool


def in_fresh_process(
    script: str,
    context: Context,
    given: Any = None,
    *,
    hash_seed: int = 0,
    torch_free: bool = False,
    environment: Mapping[str, str] | None = None,
) -> Fresh:
    """Run a script that gets `given` (pickled) and fills `answer`; `environment` has variables besides this process's.

    Working, home and temporary folders are new and empty; PYTHONPATH is kept. Raises Broken if the process crashes or
    fails, and Late if it does not end within the context's time limit, in CPU seconds, or within twice that time.
    """
    top = Path(tempfile.mkdtemp(prefix="delegatekit-conformance-"))
    try:
        return _run(script, context, given, hash_seed, torch_free, environment or {}, top)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _run(
    script: str,
    context: Context,
    given: Any,
    hash_seed: int,
    torch_free: bool,
    variables: Mapping[str, str],
    top: Path,
) -> Fresh:
    watched = {name: top / "watched" / name for name in ("work", "home", "tmp")}
    for folder in watched.values():
        folder.mkdir(parents=True)
    question, reply = top / "given", top / "answer"
    question.write_bytes(pickle.dumps(given))
    # The modules that the pickled objects come from, and no more, decide what is imported.
    threads = "" if torch_free else "import torch\ntorch.set_num_threads(1)\n"
    limit = _LIMIT.format(seconds=math.ceil(context.timeout))
    command = [sys.executable, "-c", limit + threads + _BEFORE + script + _AFTER, str(question), str(reply)]
    environment = (
        os.environ
        | variables
        | {
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Packages installed for the user are found through the home folder.
            "PYTHONUSERBASE": site.getuserbase(),
            "HOME": str(watched["home"]),
            "TMPDIR": str(watched["tmp"]),
            "XDG_CACHE_HOME": str(watched["home"] / ".cache"),
            # The session has imported the backend already: this process is to have no child of ours.
            FIRST_IMPORTS: "off",
            # One process must not reuse results that another compiled.
            COMPILED: "off",
            # What is asked is about code in this process, even if the run's delegates are on a board.
            DEVICES: "",
        }
    )
    outputs = [top / "stdout", top / "stderr"]
    with outputs[0].open("wb") as stdout, outputs[1].open("wb") as stderr:
        process = subprocess.Popen(
            command, cwd=watched["work"], env=environment, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            code = process.wait(context.timeout * _PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        orphans = _end_group(process.pid, code is None)
        process.wait()
    printed, complaints = (path.read_text("utf-8", "replace") for path in outputs)
    if code is None:
        raise Late(f"a fresh process did not end within {context.timeout * _PATIENCE:.0f} s{_last(complaints)}")
    if code < 0 and -code == _OVER:
        raise Late(f"a fresh process did not end within {context.timeout:.0f} CPU seconds{_last(complaints)}")
    if code < 0:
        raise Broken(f"a fresh process crashed: {signal_name(-code)}{_last(complaints)}")
    if code or not reply.exists():
        raise Broken(f"a fresh process ended with exit code {code}{_last(complaints)}")
    left = tuple(
        sorted(str(path.relative_to(top / "watched")) for path in (top / "watched").rglob("*") if not path.is_dir())
    )
    return Fresh(pickle.loads(reply.read_bytes()), printed, complaints, left, orphans)


def _end_group(group: int, kill: bool) -> bool:
    """True if processes of a group still exist a moment later; they are ended."""
    if not hasattr(os, "killpg"):
        return False
    # The first process is a member until it is waited for, which `wait` did, unless it hangs.
    for _ in range(0 if kill else 10):
        if not _alive(group):
            return False
        time.sleep(0.05)
    if not _alive(group):
        return False
    os.killpg(group, signal.SIGKILL)
    return True


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
