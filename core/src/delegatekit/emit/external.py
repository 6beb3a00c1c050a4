"""Decides which constants and named data are stored in data files beside the .pte, and under which keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from delegatekit_api import LoweringError, NamedData

from ..errors.foreign import as_ours
from ..pte import Datum, PtdImage, schema
from ..pte.ptd_schema import TensorLayout
from ..pte.segments import Data, contents, digest

if TYPE_CHECKING:
    import torch

#: Answers for the name and the data of a constant (a tensor) or of a backend's named data (a tensor or a memoryview;
#: both have `nbytes`): False keeps it in the .pte, True puts it into the data file named like the .pte, a
#: string into the data file of that name. One answer may be given for all.
External: TypeAlias = bool | str | Callable[[str, "torch.Tensor | memoryview"], bool | str | None]

#: Names that torch.export generates by counting: another program has another tensor under the same name.
_COUNTED = re.compile(r"(.*\.)?_?(lifted_tensor|lifted_tensor_constant|tensor_constant)_?\d+")


class Outside:
    """The data of a program that is stored outside the .pte."""

    def __init__(self, choose: External = False) -> None:
        self._choose = choose
        self._answers: dict[str, str | None] = {}
        self._files: dict[str, dict[str, Datum]] = {}

    def place(self, table: schema.Tensor, tensor: torch.Tensor, name: str | None) -> bool:
        """Ask about a constant, and if it goes outside, mark its table.

        The key is its fully qualified name; a constant without one has a name made from dtype, sizes and content.
        """
        if not self._choose:
            return False
        key = _content_name(table, tensor) if name is None or _COUNTED.fullmatch(name) else name
        file = self._file(key, tensor)
        if file is None:
            return False
        self._add(file, Datum(key, tensor, TensorLayout(table.scalar_type, table.sizes, table.dim_order)))
        table.data_buffer_idx = 0
        table.extra_tensor_info = schema.ExtraTensorInfo(
            fully_qualified_name=key, location=int(schema.TensorDataLocation.EXTERNAL)
        )
        return True

    def named_data(self, items: Sequence[NamedData]) -> list[NamedData]:
        """Ask about the named data of backends; returns those that stay in the .pte."""
        if not self._choose:
            return list(items)
        inside = []
        for item in items:
            data: Any = memoryview(item.data) if isinstance(item.data, bytes | bytearray) else item.data
            file = self._file(item.key, data)
            if file is None:
                inside.append(item)
            else:
                self._add(file, Datum(item.key, item.data, None, item.alignment))
        return inside

    def files(self) -> dict[str, PtdImage]:
        """The data files by name; "" is the one named like the .pte."""
        return {name: PtdImage(tuple(data.values())) for name, data in self._files.items()}

    def keys_of_backends(self) -> dict[str, tuple[str, ...]]:
        """The keys of named data in each data file."""
        return {
            name: tuple(key for key, datum in data.items() if datum.layout is None)
            for name, data in self._files.items()
        }

    def _file(self, key: str, data: torch.Tensor | memoryview) -> str | None:
        """The name of the data file for a key, or None. Each key is asked about once."""
        if key not in self._answers:
            with as_ours(lambda fault: LoweringError(f"`external` failed: {fault}", where=f"external data {key}")):
                answer = self._choose(key, data) if callable(self._choose) else self._choose
            self._answers[key] = _file_name(answer, key)
        return self._answers[key]

    def _add(self, file: str, datum: Datum) -> None:
        known = self._files.setdefault(file, {}).setdefault(datum.key, datum)
        if known is datum:
            return
        if known.layout != datum.layout or not _same(known.data, datum.data):
            raise LoweringError(
                "two different tensors have this name, but a data file holds one for each",
                where=f"external data {datum.key}",
                hint="let `external` keep this name in the .pte, or rename a parameter in one of the modules",
            )


def _same(first: Data, second: Data) -> bool:
    one, other = contents([first, second])
    return one == other


def _content_name(table: schema.Tensor, tensor: torch.Tensor) -> str:
    sizes = "x".join(map(str, table.sizes or ()))
    kind = schema.ScalarType(table.scalar_type).name.lower()
    return f"constant.{kind}.{sizes}.{digest(tensor).hex()[:32]}"


def _file_name(answer: Any, key: str) -> str | None:
    if answer is None or answer is False:
        return None
    if answer is True:
        return ""
    where = f"external data {key}"
    if not isinstance(answer, str):
        raise LoweringError(
            f"`external` answered {answer!r:.80}", where=where, hint="answer True, False or the name of a data file"
        )
    name = answer.removesuffix(".ptd")
    if not name or name.startswith(".") or re.search(r"[/\\\0]", name):
        raise LoweringError(f"{answer!r} is not the name of a file", where=where, hint="it is written beside the .pte")
    return name
