"""The unit of one compiler call: one partition, or all of a backend that compiles them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from delegatekit_api import BackendOptions, PartitionProgram

from ..plugins import LoadedBackend
from .hooks import compile_here
from .plain_program import PlainProgram
from .result import CheckedResult


@dataclass(frozen=True)
class Task:
    """Partitions of a backend, and the name of each for messages."""

    backend: LoadedBackend
    options: BackendOptions
    programs: Sequence[PartitionProgram]
    places: Sequence[str]

    @cached_property
    def plain(self) -> tuple[PlainProgram, ...]:
        """The partitions as plain data. Raises NotPlainError."""
        return tuple(map(PlainProgram.of, self.programs))

    def compile_here(self) -> list[CheckedResult]:
        """The results of compiling in this process. Raises whatever the backend raises."""
        return compile_here(self.backend, self.programs, self.options, self.places)
