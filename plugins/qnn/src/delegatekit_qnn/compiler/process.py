"""Starts the worker process: once for every context, and once for all questions about operators.

A process that has compiled before makes other bytes of the same graph: each context gets one of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from delegatekit_api import LoweringError

from ..blob.header import HEADER_SIZE, Blob
from ..ir.graph import Graph
from .installation import Installation, Missing, find_installation
from .requests import Constants, describe, graphs_request, request

_WORKER: Final = Path(__file__).with_name("worker.py")
_WHERE: Final = "Qualcomm's compiler"
#: Lines of what the library printed that an error shows.
_WORDS: Final = 6
_PREFIX: Final = re.compile(r"^\[(ERROR|WARNING)\] \[Qnn ExecuTorch\]:\s*(<[EW]>)?\s*")
_VALIDATION_SECONDS: Final = 60.0


def installation() -> Installation:
    """The library. Raises LoweringError, with what to do, where there is none."""
    found = find_installation()
    if isinstance(found, Missing):
        raise LoweringError(found.reason, where=_WHERE, hint=found.hint)
    return found


def compile_graphs(graphs: Sequence[Graph], options: bytes) -> Blob:
    """One context of all graphs. Raises LoweringError with what the library printed."""
    found = installation()
    with TemporaryDirectory(prefix="delegatekit-") as folder:
        place = Path(folder)
        constants = Constants()
        (place / "request.json").write_text(json.dumps(graphs_request(options, graphs, constants)), "utf-8")
        constants.write(place / "constants.bin")
        ended = subprocess.run(
            _command(found, "compile", folder), stdin=subprocess.DEVNULL, capture_output=True, cwd=folder, check=False
        )
        made = place / "context.bin"
        if ended.returncode or not made.exists():
            said = _complaints(ended.stderr.decode(errors="replace"))
            how = f"was ended by signal {-ended.returncode}" if ended.returncode < 0 else "failed"
            raise LoweringError(f"{how}{''.join(f'{chr(10)}    {line}' for line in said)}", where=_WHERE)
        # The binding writes a header of its own, whose signature is the time.
        return Blob(made.read_bytes()[HEADER_SIZE:], found.version)


def _command(found: Installation, *task: str) -> list[str]:
    return [sys.executable, "-s", str(_WORKER), str(found.folder), *task]


def _complaints(text: str) -> list[str]:
    """The library's complaints, without its marks; the last lines where there are none."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [_PREFIX.sub("", line) for line in lines if _PREFIX.match(line)]
    return (errors or lines)[-_WORDS:]


class Validator:
    """Asks the library whether it takes operations; its process starts with the first question."""

    def __init__(self, options: bytes) -> None:
        self._options: Final = options
        self._lock: Final = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def reason(self, graph: Graph) -> str | None:
        """Why the library does not take an operation of the graph; None if it takes all, or cannot be asked."""
        found = find_installation()
        if isinstance(found, Missing):
            return None
        question = json.dumps(request(self._options, graph=describe(graph)))
        with self._lock:
            answer = self._ask(found, question)
        if answer is None:
            return f"{_WHERE} ended when it was asked about it"
        return None if answer["taken"] else _reason(answer["said"])

    def _ask(self, found: Installation, question: str) -> Any:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._process = subprocess.Popen(
                _command(found, "validate"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            weakref.finalize(self, process.kill)
        assert process.stdin is not None and process.stdout is not None
        limit = threading.Timer(_VALIDATION_SECONDS, process.kill)
        limit.start()
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            limit.cancel()
        return json.loads(line) if line else None


def _reason(said: str) -> str:
    """The first complaint in the library's log."""
    found = [_PREFIX.sub("", line) for line in said.splitlines() if _PREFIX.match(line)]
    first = next((line for line in found if line.strip()), "no reason given")
    return f"Qualcomm's library refuses it: {first}"
