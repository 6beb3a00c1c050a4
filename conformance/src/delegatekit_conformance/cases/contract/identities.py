"""Identities: a text in a blob that looks like a digest or a UUID, by which a device recognizes it, covers all of it.

A text claims to identify what a blob holds if it is at the same place in several blobs and differs in each
of them. If it then stays as it is where a weight or a number changes, two models have one identity. Left alone are
digests of parts that are the same in both, keys of named data, which have a rule of their own, and blobs in which
another such text changes.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delegatekit_api import PartitionProgram

from ...context import Context
from ...insides import bytes_of
from ...recipe import Recipe, Ref
from ..base import Broken
from ..specimens import LARGE, delegates, lower, partitions, preprocess, recipe_of, taken, tensor_of
from .determinism import changed_at
from .rules import Rules

RULES = Rules()

#: The number of the part (the blob is 0), the text before, and which one after the same text it is.
Place: TypeAlias = tuple[int, str, int]
#: The same program with two numbers.
_ONE, _OTHER = (
    recipe_of(
        {"x": tensor_of(3, 20)},
        ("e", "aten.exp.default", Ref("x")),
        ("c", "aten.clamp.default", Ref("e"), 0.5, most),
        ("m", "aten.mul.Tensor", Ref("c"), Ref("x")),
    )
    for most in (1.5, 1.75)
)
_CLAMP: Final = "a clamp"
#: Others of the same operators: what names a kernel is the same in these.
_MORE: Final = {
    "large weights": LARGE,
    _CLAMP: _ONE,
    "another layer": recipe_of(
        {"x": tensor_of(6, 40), "w": tensor_of(24, 40, constant=True, seed=3)},
        ("l", "aten.linear.default", Ref("x"), Ref("w")),
    ),
    "another product": recipe_of(
        {"x": tensor_of(5, 7), "y": tensor_of(5, 7, seed=1)}, ("m", "aten.mul.Tensor", Ref("x"), Ref("y"))
    ),
}
#: A place is common to blobs of at least this many programs.
_FEWEST: Final = 3


@RULES.costing(3.0)
def identities_are_of_all(context: Context) -> str:
    """A text in a blob that looks like an identity, and differs between programs, changes with each number."""
    bases = _bases(context)
    seen: dict[Place, list[str]] = defaultdict(list)
    for _, base in bases.values():
        for place, text in base.texts.items():
            seen[place].append(text)
    claims = {place for place, found in seen.items() if len(found) >= _FEWEST and len({*found}) == len(found)}
    if not claims:
        return "no text in the blobs looks like an identity"
    changes = 0
    for name, base, what, other in _changed(bases, context):
        changes += 1
        for number, (before, after) in enumerate(zip(base.parts, other.parts, strict=False)):
            one, two = base.of_part(number), other.of_part(number)
            if one != two or before == after or not claims & {*one}:
                continue
            same = _digests(before) & _digests(after)
            for place, text in one.items():
                if place in claims and text not in base.keys and text.lower() not in same:
                    where = f" after {place[1].strip()!r}" if place[1].strip() else ""
                    raise Broken(
                        f"{name} {what}: the blob is another one, but the text {text!r}{where}, which differs from "
                        "program to program, is the same: two models have one identity"
                    )
    return f"{len(claims)} texts in {len(bases)} programs, {changes} changes"


def _bases(context: Context) -> dict[tuple[str, int], tuple[PartitionProgram, Made]]:
    """Partitions of programs, by name and number, and their compilation results."""
    programs = dict(taken(context))
    for name, recipe in _MORE.items():
        programs |= _lowered(name, recipe, context)
    return {
        (name, number): (partition, _made(partition, context))
        for name, program in programs.items()
        for number, (partition, _) in enumerate(partitions(program, context.backend))
    }


def _changed(
    bases: Mapping[tuple[str, int], tuple[PartitionProgram, Made]], context: Context
) -> Iterator[tuple[str, Made, str, Made]]:
    """The same programs with other numbers: name, old result, difference in words, new result."""
    for (name, _), (partition, base) in bases.items():
        for tensor in partition.view.constants.values():
            if tensor.numel():
                with changed_at(tensor, tensor.numel() - 1):
                    other = _made(partition, context)
                yield name, base, f"with another last number of the {tensor.numel()} of a constant", other
    for program in _lowered(_CLAMP, _OTHER, context).values():
        for number, (partition, _) in enumerate(partitions(program, context.backend)):
            if (_CLAMP, number) in bases:
                yield _CLAMP, bases[_CLAMP, number][1], "to another number", _made(partition, context)


@dataclass(frozen=True)
class Made:
    """A compiler's result for a partition: named data may lie in the memory of weights, which change again."""

    #: The blob, and the named data.
    parts: tuple[bytes, ...]
    #: The keys of the named data.
    keys: str
    texts: Mapping[Place, str]

    def of_part(self, number: int) -> dict[Place, str]:
        """The texts of one part."""
        return {place: text for place, text in self.texts.items() if place[0] == number}


def _made(partition: PartitionProgram, context: Context) -> Made:
    result = preprocess(partition, context)
    blob = result.blob
    pieces = [blob] if isinstance(blob, bytes | bytearray | memoryview) else blob
    parts = (b"".join(map(bytes, pieces)), *(bytes_of(item.data) for item in result.named_data))
    found = {(number, *place): text for number, data in enumerate(parts) for place, text in texts(data).items()}
    return Made(parts, " ".join(item.key for item in result.named_data), found)


def _lowered(name: str, recipe: Recipe, context: Context) -> Mapping[str, Any]:
    try:
        program = lower(recipe, context)
    except Exception:  # the operator cases report it
        return {}
    return {name: program} if delegates(program, context.backend) else {}


# Reading

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
#: Digits of digests of 64 to 512 bits; in base64 with or without what fills it up.
_HEX: Final = "|".join(rf"[0-9a-f]{{{n}}}|[0-9A-F]{{{n}}}" for n in (128, 96, 64, 56, 48, 40, 32, 16))
_BASE64: Final = "|".join(
    rf"[\w+/-]{{{n}}}={{0,{fill}}}" for n, fill in ((86, 2), (64, 0), (43, 1), (32, 0), (27, 1), (22, 2))
)
_IDENTITY: Final = re.compile(
    rf"(?<![0-9A-Za-z])(?:{_UUID}|{_HEX})(?![0-9A-Za-z])|(?<![\w+/-])(?:{_BASE64})(?![\w+/=-])", re.ASCII
)
_PRINTED: Final = re.compile(rb"[\t\n\r -~]{16,}|(?:[\t\n\r -~]\0){16,}")
#: The last word before a text, with the characters between, is its place; this many characters are searched for it.
_PLACE: Final = re.compile(r"(?:[A-Za-z_]{2,}[^A-Za-z_]*)?\Z")
_BEFORE: Final = 120
#: Containers in containers, and unpacked bytes, at most.
_DEPTH, _MOST = 3, 64 << 20
_ALGORITHMS: Final = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s", "sha3_256")


def texts(data: bytes) -> dict[tuple[str, int], str]:
    """The texts that look like identities, by the text before them and their number after it."""
    found: dict[tuple[str, int], str] = {}
    for part in _parts(data):
        for run in _PRINTED.findall(part):
            printed = run.replace(b"\0", b"").decode("ascii")
            for match in _IDENTITY.finditer(printed):
                if not _is_mixed(match[0]):
                    continue
                before = printed[max(0, match.start() - _BEFORE) : match.start()]
                before = re.sub(r"\d+", "0", _PLACE.findall(_IDENTITY.sub("?", before))[0])
                number = sum(known == before for known, _ in found)
                found[before, number] = match[0]
    return found


def _is_mixed(text: str) -> bool:
    """True if letters and digits alternate as they do by chance: words and numbers do not."""
    kinds = ["d" if x.isdigit() else "l" if x.islower() else "u" if x.isupper() else "-" for x in text]
    turns = sum(one != other for one, other in itertools.pairwise(kinds))
    if re.fullmatch(rf"{_UUID}|{_HEX}", text):
        return "d" in kinds and bool({"l", "u"} & {*kinds})
    return {"d", "l", "u"} <= {*kinds} and turns * 5 >= 2 * len(text)


def _parts(data: bytes, depth: int = 0) -> Iterator[bytes]:
    """The bytes, and the contents packed in them."""
    yield data
    if depth == _DEPTH:
        return
    inner: list[bytes] = []
    if b"PK\5\6" in data:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for item in archive.infolist():
                    if item.file_size <= _MOST:
                        inner.append(archive.read(item))
        except Exception:  # bytes that only look like an archive
            inner.clear()
    if data[:2] == b"\x1f\x8b" or data[:2] in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        with suppress(zlib.error):
            inner.append(zlib.decompressobj(wbits=47).decompress(data, _MOST))
    for part in inner:
        yield from _parts(part, depth + 1)


def _digests(data: bytes) -> set[str]:
    """Digests of the bytes and of all that is packed in them."""
    return {hashlib.new(name, part).hexdigest() for part in _parts(data) for name in _ALGORITHMS}
