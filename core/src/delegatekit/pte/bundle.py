"""The program in a .bpte (ExecuTorch 1.5): a flatbuffer of inputs and expected outputs, with a .pte at its end."""

from __future__ import annotations

from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit.flatbuffer import Table, data, deprecated, parse, u32

#: File identifier of a .bpte.
BUNDLE_IDENTIFIER: Final = b"BP08"
#: The version written by ExecuTorch 1.5.
BUNDLE_VERSION: Final = 2


class _Root(Table):
    """The root table without the cases, which whoever only runs the program does not read."""

    version: int = u32()
    cases: None = deprecated()
    program: memoryview | bytes | None = data(align=32)


def is_bundle(view: memoryview) -> bool:
    """True if the bytes start like those of a .bpte."""
    return bytes(view[4:8]) == BUNDLE_IDENTIFIER


def bundled_program(view: memoryview) -> memoryview:
    """The .pte in a bundle, unchecked. Raises FormatError for anything that is no .bpte with a program."""
    root = parse(_Root, view, (BUNDLE_IDENTIFIER,))
    if root.version > BUNDLE_VERSION:
        raise FormatError(
            f"the bundle has version {root.version}, this reader knows {BUNDLE_VERSION}", hint="upgrade delegatekit"
        )
    if root.program is None:
        hint = "the file is damaged, or was written by a faulty tool"
        raise FormatError("the bundle has no program", hint=hint)
    return memoryview(root.program).cast("B")
