"""A lowered program: the image of its file, and what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from ..emit import Emitted
from ..emit.debug_map import debug_map
from ..files import Writer
from ..lowering import LoweredMethod, Shares, shares_of
from ..partition import PartitionedMethod
from ..pte import PteImage, ptd_to_bytes, to_bytes, write

#: What is written beside a file: a text, bytes, or a function that writes into an open binary file.
Content: TypeAlias = str | bytes | Writer


class LoweredProgram:
    """A program lowered for its backends, ready to be written as a .pte file.

    `methods` maps method names to lowered methods; `stages` gives the CPU seconds of each stage; `backends` are those
    that were chosen; `partitioned` has the methods as they were planned; `emitted` the image of the file, with the
    debug handles of its instructions and the places of its values in memory.
    """

    def __init__(
        self,
        methods: Mapping[str, LoweredMethod],
        emitted: Emitted,
        stages: Mapping[str, float],
        partitioned: Mapping[str, PartitionedMethod],
        backends: Sequence[str] = (),
    ) -> None:
        self.methods = dict(methods)
        self.stages = dict(stages)
        self.backends = tuple(backends)
        self.emitted = emitted
        self.partitioned = dict(partitioned)

    @property
    def image(self) -> PteImage:
        """The content of the file."""
        return self.emitted.image

    @cached_property
    def shares(self) -> Shares:
        """The operators and multiply-accumulates that each backend runs, and what is left out, with the reasons."""
        return shares_of(self.partitioned, self.backends)

    @property
    def buffer(self) -> bytes:
        """The .pte file as bytes. For large models `save` is better: it never holds the file in memory."""
        return to_bytes(self.image)

    @property
    def data_files(self) -> dict[str, bytes]:
        """The data files (.ptd) as bytes, by name; "" is the one that `save` names as the .pte."""
        return {name: ptd_to_bytes(data) for name, data in self.image.data_files.items()}

    def save(self, path: str | Path, *, beside: Mapping[str | Path, Content] | None = None) -> tuple[Path, ...]:
        """Write the .pte file and its data files beside it: "model.pte", "model.ptd", NAME.ptd for others.

        `beside` has what else is to be written, by path: a text, bytes, or a function that is called with the open
        binary file. All files appear whole, or none. Files that exist keep their mode; a symbolic link is followed.
        Returns the paths, that of the .pte last. Raises FormatError for a path that is not a regular file, is
        write-protected, or cannot be written for another reason.
        """
        return write(self.image, Path(path), {Path(name): _writer(what) for name, what in (beside or {}).items()})

    def debug_map(self) -> dict[str, Any]:
        """From instructions and delegates' operators back to the exported nodes, modules and source lines."""
        return debug_map(self.methods, self.image, self.emitted.handles)


def _writer(content: Content) -> Writer:
    if callable(content):
        return content
    data = content.encode() if isinstance(content, str) else content
    return lambda file: file.write(data)
