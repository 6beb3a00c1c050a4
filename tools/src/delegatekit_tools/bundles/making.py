"""Makes a bundle of a program and cases; the engine computes the outputs of cases without expected ones."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from delegatekit.engine import LoadedProgram, load
from delegatekit.files import Source, open_view, write_files
from delegatekit.pte import is_bundle, naming, read, validate

from .cases import Case, Signature
from .file import Bundle, read_bundle, write_bundle


class BundledProgram:
    """A program with cases for its methods, ready to be written."""

    def __init__(self, content: Bundle) -> None:
        self._content = content

    @property
    def cases(self) -> dict[str, int]:
        """Method -> number of its cases."""
        return {name: len(cases) for name, cases in self._content.cases.items()}

    @property
    def buffer(self) -> bytes:
        """The .bpte as bytes. For large programs use `save`: it never holds the file in memory."""
        file = io.BytesIO()
        write_bundle(self._content, file)
        return file.getvalue()

    def save(self, path: str | Path) -> Path:
        """Write the .bpte: whole, or not at all. Raises FormatError for a path that cannot be written."""
        write_files({Path(path): partial(write_bundle, self._content)})
        return Path(path)


def bundle(
    program: Source,
    cases: Mapping[str, Sequence[Case]],
    *,
    data: Source | Sequence[Source] = (),
    backends: Sequence[str] = (),
    isolate: bool | Collection[str] = False,
) -> BundledProgram:
    """A program (.pte) with cases for its methods, by the methods' names.

    Cases without expected outputs get those that the Python engine computes from the buffers' initial values; only
    these need the delegates' runtimes, and `data`, `backends` and `isolate` are as for `load`. A
    program that is already a bundle keeps its cases, and these are added. Raises FormatError for a damaged file,
    UnknownMethodError, and ExecutionError for arguments that a method does not accept.
    """
    file = read(program)
    with naming(program):
        validate(file)
    content = _content(program)
    loaded: LoadedProgram | None = None
    try:
        for name, given in cases.items():
            signature = Signature(file, name)
            found = list(content.cases.get(name, ()))
            for case in given:
                where = f"method {name}, case {len(found)}"
                if case.expected is not None:
                    expected = tree_leaves(case.expected)
                else:
                    loaded = loaded or load(program, data=data, backends=backends, isolate=isolate)
                    expected = _computed(loaded, signature, case)
                found.append(signature.table(case, expected, where))
            content = Bundle(content.program, {**content.cases, name: found})
    finally:
        if loaded is not None:
            loaded.close()
    return BundledProgram(content)


def _content(program: Source) -> Bundle:
    view = open_view(program)
    return read_bundle(view) if is_bundle(view) else Bundle(view, {})


def _computed(loaded: LoadedProgram, signature: Signature, case: Case) -> list[object]:
    method = loaded[signature.name]
    loaded.reset()
    results = method.run(signature.flatten(case))
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in results]
