"""Hostile text: each text of a recorded payload is replaced by one that does harm if it is interpreted.

Python's audit hooks cannot be removed, and the texts may do harm: this is for a fresh process. What
a backend does with the payload as it was written is known before; blamed is what a text makes it do.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

import torch

from delegatekit_api import CompileSpec, DelegatePayload

from ..context import Context
from .specimens import Sample, backend_of, changed

#: Stands in each hostile text, and in nothing else.
TOKEN = "zq7"
#: Texts that do something where they are evaluated, imported, opened, run by a shell, unpickled or taken as a format.
TEXTS = (
    "zq7()",
    "zq7",
    "../zq7",
    "`>zq7`",
    "$(>zq7)",
    ";>zq7;",
    "__import__('zq7')",
    "open('zq7','w')",
    "{zq7.__class__}",
    "%n%s%n%s%n%s",
    "czq7\nzq7\n.",
    "http://zq7.invalid/",
)
#: Runs of printable bytes that count as text.
_RUN = re.compile(rb"[\x20-\x7e]{3,}")
#: Bytes at the beginning in which a format has its checksum and its lengths.
_HEADER = 96
#: Audit events too frequent or too harmless to be informative.
_QUIET = ("sys.", "gc.", "cpython.", "builtins.id", "object.", "code.", "function.", "ctypes.cdata", "ctypes.string")
#: How much longer than its CPU time a backend may take by the clock, which waits for its processes.
_WAIT = 3
_SHELLS = ("sh", "bash", "dash", "cmd", "cmd.exe", "zsh")
#: The shortest evaluated text that counts as one of the payload's.
_SHORT = 3


@dataclass(frozen=True)
class Variant:
    """A payload with one text changed."""

    #: The text, and its replacement.
    what: str
    payload: DelegatePayload


# Listening


class Listener:
    """Records calls of Python's own functions while it is on, and unpickled data."""

    def __init__(self) -> None:
        self.on = False
        #: Content of the payload, in which evaluated texts are looked up.
        self._known = b""
        self._compiled: list[str] = []
        self.heard: list[str] = []

    def install(self) -> None:
        """For the rest of the process' life."""
        sys.addaudithook(self._event)
        sys.meta_path.insert(0, self)  # not all imports are audited
        for module in (pickle, sys.modules["_pickle"]):
            module.loads = self._watched_loads(module.loads)  # type: ignore[attr-defined]
            module.load = self._watched_load(module.load)  # type: ignore[attr-defined]
        pickle.Unpickler = self._watched_unpickler(pickle.Unpickler)  # type: ignore[assignment, misc]

    @contextmanager
    def listening(self, payload: DelegatePayload) -> Iterator[None]:
        """Listen while a payload is processed; the list starts empty."""
        texts = [bytes(payload.blob), *(key.encode() for key in payload.named_data)]
        texts += [item for spec in payload.compile_specs for item in (spec.key.encode(), bytes(spec.value))]
        self._known = b"\0".join(texts)
        self._compiled, self.heard = [], []
        self.on = True
        try:
            yield
        finally:
            self.on = False

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on or event.startswith(_QUIET):
            return
        self.on = False  # actions here are not recorded
        try:
            told = self._judged(event, arguments)
            if told:
                self.heard.append(told)
        finally:
            self.on = True

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Records the name of each imported module, and finds none."""
        if self.on and TOKEN in name:
            self.heard.append(f"imports {name!r}")

    def _judged(self, event: str, arguments: tuple[Any, ...]) -> str:
        if event == "compile":
            source = arguments[0]
            text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
            if isinstance(text, str) and len(text.strip()) >= _SHORT and text.strip().encode() in self._known:
                self._compiled.append(text.strip())
            return ""  # `ast.literal_eval` compiles, too: only executed code counts
        if event == "exec":
            code = arguments[0]
            if not isinstance(code, CodeType) or not code.co_filename.startswith("<"):
                return ""
            if self._compiled:
                return f"evaluates a text of the payload: {self._compiled[-1][:80]!r}"
            if TOKEN in code.co_names:
                return f"evaluates code that names {TOKEN!r}"
            return ""
        if event == "marshal.loads":
            data = bytes(arguments[0])
            return "reads marshalled code from the payload" if len(data) > _SHORT and data in self._known else ""
        if event == "subprocess.Popen":
            return _program(arguments)
        if event == "pickle.find_class" and TOKEN in str(arguments):
            return f"unpickles what the payload names: {arguments!r}"
        if any(_has_token(argument) for argument in arguments):
            return f"{event} with {next(filter(_has_token, arguments))!r:.80}"
        return ""

    def _unpickled(self, data: Any) -> None:
        if self.on:
            content = bytes(data)
            if len(content) > _SHORT and content[:64] in self._known:
                self.heard.append(f"unpickles {len(content)} bytes of the payload")

    def _watched_loads(self, sound: Callable[..., Any]) -> Callable[..., Any]:
        def loads(data: Any, /, *args: Any, **more: Any) -> Any:
            self._unpickled(data)
            return sound(data, *args, **more)

        return loads

    def _watched_load(self, sound: Callable[..., Any]) -> Callable[..., Any]:
        def load(file: Any, *args: Any, **more: Any) -> Any:
            self._unpickled(_rest(file))
            return sound(file, *args, **more)

        return load

    def _watched_unpickler(self, sound: type) -> type:
        listener = self

        class Unpickler(sound):  # type: ignore[misc]
            def __init__(self, file: Any, *args: Any, **more: Any) -> None:
                listener._unpickled(_rest(file))
                super().__init__(file, *args, **more)

        return Unpickler


def _rest(file: Any) -> bytes:
    """The rest of a file in memory from its position on."""
    if not isinstance(file, io.BytesIO):
        return b""
    return file.getvalue()[file.tell() :]


def _has_token(value: Any) -> bool:
    if isinstance(value, bytes | bytearray | memoryview):
        return TOKEN.encode() in bytes(value)
    if isinstance(value, list | tuple):
        return any(map(_has_token, value))
    return TOKEN in str(value) if isinstance(value, str | Path) else False


def _program(arguments: tuple[Any, ...]) -> str:
    """A program that a text chooses, or a shell that reads one. As a program's argument a text is only passed on."""
    executable, given, *_ = arguments
    shell = Path(str(executable)).name in _SHELLS
    if _has_token(str(executable)) or (shell and _has_token(given)):
        return f"starts {executable!r} with {given!r:.80}"
    return ""


# Variants


def variants(item: Sample, seed: int = 0) -> Iterator[Variant]:
    """Payloads with one hostile text each, in a random order: in the blob, its compile specs and the keys of data."""
    made = [*_of_specs(item), *_of_keys(item), *_of_blob(item)]
    random.Random(seed).shuffle(made)
    for what, make in made:
        payload = make()
        if payload is not None:
            yield Variant(what, payload)


_Made = tuple[str, Callable[[], "DelegatePayload | None"]]


def _of_specs(item: Sample) -> Iterator[_Made]:
    specs = item.payload.compile_specs

    def make(index: int, spec: CompileSpec) -> Callable[[], DelegatePayload]:
        return lambda: replace(item.payload, compile_specs=(*specs[:index], spec, *specs[index + 1 :]))

    for index, spec in enumerate(specs):
        for text in TEXTS:
            yield f"compile spec {spec.key!r} is {text!r}", make(index, CompileSpec(spec.key, text.encode()))
        yield f"the key {spec.key!r} is {TEXTS[0]!r}", make(index, CompileSpec(TEXTS[0], bytes(spec.value)))


def _of_keys(item: Sample) -> Iterator[_Made]:
    """Keys of named data, in the blob, too."""
    blob = bytes(item.payload.blob)
    for key in item.payload.named_data:
        for text in TEXTS:
            if len(text) > len(key) or key.encode() not in blob:
                continue

            def make(key: str = key, text: str = text) -> DelegatePayload:
                other = text.ljust(len(key))
                named = {other if name == key else name: bytes(data) for name, data in item.payload.named_data.items()}
                content = resealed(blob, blob.replace(key.encode(), other.encode()))
                views = {name: memoryview(data) for name, data in named.items()}
                return replace(item.payload, blob=memoryview(content), named_data=views)

            yield f"the key {key!r} of named data is {text!r}", make


def _of_blob(item: Sample) -> Iterator[_Made]:
    blob = bytes(item.payload.blob)
    for match in _RUN.finditer(blob):
        found = _tree(match.group())
        if found is not None:
            yield from _of_json(item, blob, match, found)
            continue
        for text in TEXTS:
            if len(text) <= len(match.group()):
                yield _run(item, blob, match.start(), match.group(), text)


def _run(item: Sample, blob: bytes, start: int, old: bytes, text: str) -> _Made:
    new = text.encode().ljust(len(old))

    def make() -> DelegatePayload:
        return changed(item.payload, resealed(blob, blob[:start] + new + blob[start + len(old) :]))

    return f"the text {old[:40].decode()!r} at byte {start} of the blob is {text!r}", make


def _tree(text: bytes) -> Any:
    if text[:1] not in b"{[":
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _of_json(item: Sample, blob: bytes, match: re.Match[bytes], tree: Any) -> Iterator[_Made]:
    whole = match.group()
    compact = b", " not in whole and b": " not in whole
    separators = (",", ":") if compact else None
    for old in sorted(_texts(tree)):
        for text in TEXTS:

            def make(old: str = old, text: str = text) -> DelegatePayload | None:
                new = json.dumps(_exchanged(tree, old, text), separators=separators).encode()
                if len(new) < len(whole):
                    new = new.ljust(len(whole))
                content = blob[: match.start()] + new + blob[match.end() :]
                if len(new) > len(whole):
                    content = _relengthened(blob, content, match.start())
                return changed(item.payload, resealed(blob, content))

            yield f"the text {old[:40]!r} in the blob's JSON is {text!r}", make


def _texts(tree: Any) -> set[str]:
    if isinstance(tree, str):
        return {tree}
    if isinstance(tree, dict):
        return set(tree).union(*map(_texts, tree.values()))
    return set().union(*map(_texts, tree)) if isinstance(tree, list) else set()


def _exchanged(tree: Any, old: str, new: str) -> Any:
    if isinstance(tree, str):
        return new if tree == old else tree
    if isinstance(tree, dict):
        return {_exchanged(key, old, new): _exchanged(value, old, new) for key, value in tree.items()}
    return [_exchanged(item, old, new) for item in tree] if isinstance(tree, list) else tree


def _relengthened(old: bytes, new: bytes, start: int) -> bytes:
    """`new` with the lengths that stand in front of byte `start` corrected: of what follows, and of the whole."""
    made = bytearray(new)
    for length, other in ((len(old) - start, len(new) - start), (len(old), len(new))):
        for size in (8, 4):
            place = old[:start].find(length.to_bytes(size, "little"))
            if place >= 0:
                made[place : place + size] = other.to_bytes(size, "little")
                break
    return bytes(made)


def resealed(old: bytes, new: bytes) -> bytes:
    """`new` with its checksum corrected, where `old` has one that is found, as an attacker would.

    Looked for are CRC-32, Adler-32 and common digests near the beginning, of what follows them or of all the rest.
    """
    for place in range(min(_HEADER, len(old))):
        for size, compute in _DIGESTS:
            there = old[place : place + size]
            if len(there) < size or not any(there):
                continue
            for covered in (_after, _around, _blanked):
                if compute(covered(old, place, size)) == there:
                    return new[:place] + compute(covered(new, place, size)) + new[place + size :]
    return new


def _after(data: bytes, place: int, size: int) -> bytes:
    return data[place + size :]


def _around(data: bytes, place: int, size: int) -> bytes:
    return data[:place] + data[place + size :]


def _blanked(data: bytes, place: int, size: int) -> bytes:
    return data[:place] + bytes(size) + data[place + size :]


_DIGESTS: Sequence[tuple[int, Callable[[bytes], bytes]]] = (
    (4, lambda data: zlib.crc32(data).to_bytes(4, "little")),
    (4, lambda data: zlib.adler32(data).to_bytes(4, "little")),
    (32, lambda data: hashlib.sha256(data).digest()),
    (16, lambda data: hashlib.md5(data, usedforsecurity=False).digest()),
    (20, lambda data: hashlib.sha1(data, usedforsecurity=False).digest()),
)


# Trying them


def heard(listener: Listener, items: Sequence[Sample], context: Context, seconds: float) -> Mapping[str, Any]:
    """Actions of the backend caused by texts, in words, and the number of texts tried: as many as fit into `seconds`.

    These are of the CPU; a backend that works in other processes has a few times as long by the clock.
    Each text is printed to standard error before it is tried: the process may not survive it.
    """
    runtime = backend_of(context).create_runtime(apart=False)
    found: list[str] = []
    tried = 0
    folder = Path.cwd()
    for item in items:
        _try(listener, runtime, Variant("the payload as it was written", item.payload), item)
        told = _try(listener, runtime, Variant("the payload as it was written", item.payload), item)
        if told:
            found.append(f"{item.name}: {told}")
    streams = [variants(item, number) for number, item in enumerate(items)]
    end, latest = time.process_time() + seconds, time.monotonic() + _WAIT * seconds
    while streams and not found and time.process_time() < end and time.monotonic() < latest:
        for stream, item in list(zip(streams, items, strict=True)):
            variant = next(stream, None)
            if variant is None:
                items = [other for other, one in zip(items, streams, strict=True) if one is not stream]
                streams = [one for one in streams if one is not stream]
                continue
            sys.stderr.write(f"{item.name}: {variant.what}\n")
            sys.stderr.flush()
            told = _try(listener, runtime, variant, item) or _left(folder)
            tried += 1
            if told:
                found.append(f"{item.name}: {variant.what}: {told}")
                break
    return {"found": found, "tried": tried}


def _try(listener: Listener, runtime: Any, variant: Variant, item: Sample) -> str:
    with listener.listening(variant.payload), suppress(Exception), torch.no_grad():
        handle = runtime.init(variant.payload)
        try:
            runtime.execute(handle, [tensor.clone() for tensor in item.inputs], item.blank())
        finally:
            runtime.destroy(handle)
    return listener.heard[0] if listener.heard else ""


def _left(folder: Path) -> str:
    """The file that a text's program made, if there is one, in the working, home or temporary folder."""
    for place in (folder, *(folder.parent / name for name in ("home", "tmp"))):
        for path in place.glob("*") if place.is_dir() else ():
            if TOKEN in path.name:
                return f"runs a text of the payload as a program: it made the file {path.name!r}"
    return ""
