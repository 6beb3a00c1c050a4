"""The unit of one compiler call: one partition, or all of a backend that compiles them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from delegatekit_api import BackendOptions, NamedData, PartitionProgram
from delegatekit_toolkit.later import Shelf

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

    def release(self) -> int:
        """Free the computed constants. Returns their bytes."""
        views = [item.view for item in self.programs]
        return sum(view.operand(node).value.nbytes for view in views for node in view.constants if view.release(node))

    def released(self, results: Sequence[CheckedResult], shelf: Shelf) -> list[CheckedResult]:
        """Results of this process, after which no computed constant stays in memory.

        Those may be more than memory holds, and so may what is made of them: that is made again when it is written.
        """
        if not self.release():
            return list(results)

        def again() -> list[NamedData]:
            made = self.compile_here()
            self.release()
            return [item for result in made for item in result.named_data]

        items = (item for result in results for item in result.named_data)
        named = shelf.put_off(tuple(items), again, f"backend {self.backend.name}")
        return [replace(result, named_data=tuple(named[item.key] for item in result.named_data)) for result in results]
