"""A lowered program: the image of its file, and what can be told about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .emit import Emitted
from .etrecord import RecordedMethod, write_etrecord
from .files import Writer
from .json_text import to_json
from .lowering import LoweredMethod
from .partition import PartitionedMethod
from .pte import ptd_to_bytes, to_bytes, write
from .views.debug_map import debug_map
from .views.page import Compiled, page
from .views.report import Report, make_report


class LoweredProgram:
    """A program lowered for its backends, ready to be written as a .pte file.

    `methods` maps method names to lowered methods; `stages` gives the CPU seconds of each stage; `backends` are those
    that were chosen.
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
        self._emitted = emitted
        self._partitioned = partitioned
        self._image = emitted.image

    @property
    def buffer(self) -> bytes:
        """The .pte file as bytes. For large models `save` is better: it never holds the file in memory."""
        return to_bytes(self._image)

    @property
    def data_files(self) -> dict[str, bytes]:
        """The data files (.ptd) as bytes, by name; "" is the one that `save` names as the .pte."""
        return {name: ptd_to_bytes(data) for name, data in self._image.data_files.items()}

    def save(
        self,
        path: str | Path,
        *,
        debug_map: str | Path | None = None,
        etrecord: str | Path | None = None,
        html: str | Path | None = None,
    ) -> tuple[Path, ...]:
        """Write the .pte file and its data files beside it: "model.pte", "model.ptd", NAME.ptd for others.

        `debug_map` is a JSON file to write `debug_map()` to, `etrecord` a file for ExecuTorch's Inspector, which leads
        from events of its runtime to operators and source lines; it has the weights, too; `html` a file for the page
        that `html()` makes. All files appear whole, or none. Files that exist keep their mode; a symbolic link is
        followed. Returns the paths, that of the .pte last. Raises FormatError for a path that is not a regular file, is
        write-protected, or cannot be written for another reason.
        """
        beside: dict[Path, Writer] = {}
        if debug_map is not None:
            text = to_json(self.debug_map()).encode()
            beside[Path(debug_map)] = lambda file: file.write(text)
        if html is not None:
            report = self.html(Path(path).name).encode()
            beside[Path(html)] = lambda file: file.write(report)
        if etrecord is not None:
            beside[Path(etrecord)] = partial(write_etrecord, self._recorded())
        return write(self._image, Path(path), beside)

    def debug_map(self) -> dict[str, Any]:
        """From instructions and delegates' operators back to the exported nodes, modules and source lines."""
        return debug_map(self.methods, self._image, self._emitted.handles)

    def _recorded(self) -> dict[str, RecordedMethod]:
        plans = {str(plan.name): plan for plan in self._image.plans}
        return {
            name: RecordedMethod(method, plans[name], self._emitted.handles[name])
            for name, method in self.methods.items()
        }

    def html(self, title: str = "Delegation report") -> str:
        """The delegation report: one page with the graph, who runs what and why, estimates, memory over time, weights.

        It needs no network, and the same program gives the same page.
        """
        return page(title, self._partitioned, compiled=Compiled(self.report(), self._emitted.placed))

    def report(self) -> Report:
        """What was delegated, what was not, and what the file will need."""
        return make_report(self.methods, self._image, self.stages, self._emitted.arenas, self.backends)
