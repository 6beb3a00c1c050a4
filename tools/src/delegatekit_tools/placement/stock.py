"""ExecuTorch's own runtime, where a file will run: times programs in a process of its own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from delegatekit.pipeline import LoweredProgram
from delegatekit.plugins import address_of
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.limited import module
from delegatekit_toolkit.processes import Answering, EndedError, search_path

from ..profile import read_etdump

#: Seconds after which no further call begins: of a file alone, of files in rounds, of a recording.
_ALONE: Final = 2.0
_ROUNDS: Final = 20.0
_RECORDING: Final = 2.0
#: Seconds that an answer may take: one call of a large network on kernels without blocks takes minutes.
_PATIENCE: Final = 600.0

#: Arguments of a call of each method: by position, and by name.
Inputs = Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]]


class RefusedError(Exception):
    """The runtime does not run a program; the text is the reason."""


class StockRuntime:
    """The process, which is started at the first question, and again after it has crashed."""

    def __init__(
        self, folder: Path, inputs: Inputs, backends: Mapping[str, str], *, runs: int, warm_up: int, cpu: bool
    ) -> None:
        """`folder` gets the files; `backends` are the delegate ids of the backends, by their names.

        With `cpu` it has one thread, whose CPU seconds are taken.
        """
        self._folder = folder
        self._backends = dict(backends)
        self._runs, self._warm_up, self._cpu = runs, warm_up, cpu
        self._process: Answering | None = None
        self._inputs = {}
        for number, (name, given) in enumerate(inputs.items()):
            self._inputs[name] = str(folder / f"inputs-{number}.pt")
            torch.save(tree_leaves(given), self._inputs[name])
        #: The reason why nothing runs there; empty if something does.
        self.missing = "" if find_spec("executorch") is not None else _MISSING
        #: Version and threads, once it was started.
        self.facts: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        if not self.missing:
            self._started()

    def check(self, program: LoweredProgram) -> None:
        """Raise RefusedError if the runtime lacks a delegate of a program."""
        used = {item.partition.backend for method in program.methods.values() for item in method.delegates}
        for name in sorted(used & self._refused.keys()):
            raise RefusedError(f"{name}: {self._refused[name]}")

    def instructions(self, program: LoweredProgram, method: str) -> list[float]:
        """Seconds of each instruction of a method: medians of wall times, with `cpu` the least. Raises RefusedError."""
        self.check(program)
        file, dump = self._written(program), self._folder / "dump.etdp"
        limits = {"cpu": False, "runs": self._runs, "warm_up": self._warm_up, "seconds": _RECORDING}
        try:
            self._ask("record", file=str(file), method=method, inputs=self._inputs[method], dump=str(dump), **limits)
            found = read_etdump(dump, file, method=method, warm_up=self._warm_up)
        except DelegateKitError as error:
            raise RefusedError(f"its ETDump cannot be read: {error.what}") from error
        finally:
            file.unlink(missing_ok=True)
            dump.unlink(missing_ok=True)
        return [min(item.times.wall) if self._cpu else item.times.median for item in found.instructions]

    def alone(self, program: LoweredProgram, seconds: float = _ALONE) -> list[float]:
        """Seconds of some calls of a program, none of which begins after `seconds`. Raises RefusedError."""
        self.check(program)
        limits = {"cpu": self._cpu, "runs": self._runs, "warm_up": self._warm_up, "seconds": seconds}
        answer = self._ask("alone", file=str(self._written(program)), inputs=self._inputs, **limits)
        return [float(value) for value in answer["seconds"]]

    def rounds(self, programs: Sequence[LoweredProgram], more: int = 1) -> list[list[float]]:
        """Seconds of each program in every round, all loaded together; `more` times as many. Raises RefusedError."""
        files = [str(self._written(program)) for program in programs]
        limits = {"cpu": self._cpu, "runs": more * self._runs, "seconds": more * _ROUNDS}
        answer = self._ask("rounds", files=files, inputs=self._inputs, **limits)
        return [[float(value) for value in values] for values in answer["seconds"]]

    def renew(self) -> None:
        """End the process: the next question starts another, in which nothing is where it was."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def _written(self, program: LoweredProgram) -> Path:
        data = program.buffer
        path = self._folder / f"{hashlib.sha256(data).hexdigest()}.pte"
        if not path.exists():
            path.write_bytes(data)
        return path

    def _started(self) -> Answering:
        if self._process is None or not self._process.alive:
            self._process = Answering(module(_PROCESS), seconds=_PATIENCE, environment=search_path())
            try:
                away = {name: f"its runtime is at {place}" for name in self._backends if (place := address_of(name))}
                here = {name: identifier for name, identifier in self._backends.items() if name not in away}
                found = self._ask("start", backends=here, threads=1 if self._cpu else 0)
            except RefusedError as error:
                self.missing = f"ExecuTorch's runtime does not start: {error}"
            else:
                self._refused = found["refused"] | away
                self.facts = {"runtime": found["runtime"], "threads": str(found["threads"])}
        return self._process

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        process = self._process if do == "start" else self._started()
        assert process is not None
        try:
            found: dict[str, Any] = json.loads(process.ask(to_json({"do": do, **arguments}, compact=True).encode()))
        except EndedError as error:
            self._process = None
            raise RefusedError(f"its process {error}") from error
        if "fault" in found:
            raise RefusedError(_in_words(found["fault"]))
        return found


_PROCESS: Final = "delegatekit_tools.placement.process"
_MISSING: Final = "executorch is not installed: pip install 'delegatekit-tools[stock]'"
#: ExecuTorch's code of a program that calls an operator that the wheel has no kernel for.
_NO_KERNEL: Final = "0x14"


def _in_words(fault: str) -> str:
    if _NO_KERNEL in fault:
        return "ExecuTorch's wheel has no kernel for one of its operators"
    return fault
