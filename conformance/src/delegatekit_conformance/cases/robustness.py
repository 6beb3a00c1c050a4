"""Robustness: damaged blobs end in an error or in the right answer.

Each damage is an example, so that a crash costs this one only and is reported with its place. Places are fractions of
the blob, which is compiled where the example is tried: examples can be listed without running the backend.
"""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from delegatekit.plugins.apart import RuntimeDiedError
from delegatekit_api import DelegateKitError, DelegatePayload, FormatError
from delegatekit_toolkit.accuracy import compare

from ..context import IMPORTS, Context
from ..drawing import draw
from ..outcome import Outcome, Verdict
from ..strategies import load_operators
from ..trial import words
from .base import Case, NotApplicable
from .damages import Balanced, alike, byte_replaced, has_words, places, words_of
from .operators import rows_of
from .specimens import DAMAGED, Sample, backend_of, changed, delegates, lower, runs, same, sample, take_down

#: The specimens whose blobs are damaged.
PROGRAMS = ("arithmetic", "linear", "convolution", "softmax", "branches", "quantized convolution", "dynamic")


@dataclass(frozen=True)
class Damage:
    """A damage to one delegate of a program: a cut, or a flipped bit, at a fraction of its bytes."""

    program: str
    #: "truncated" or "flipped".
    kind: str
    #: From 0 to 1, of the length in bytes (truncated) or bits (flipped).
    place: float
    #: Chooses the delegate, where a program has several, and the key of the named data.
    choice: int = 0
    #: True if the named data are damaged instead of the blob.
    named: bool = False

    def describe(self) -> str:
        """One line; the outcome's detail has the byte."""
        what = "named data" if self.named else "blob"
        if self.kind == "truncated":
            return f"{self.program}: {what} {self.choice} cut off at {self.place:.6f} of its length"
        return f"{self.program}: bit at {self.place:.6f} of {what} {self.choice} flipped"

    def apply(self, data: bytes) -> tuple[bytes, str]:
        """The damaged bytes, and the change in words. `data` is not empty."""
        if self.kind == "truncated":
            length = min(int(self.place * len(data)), len(data) - 1)
            return data[:length], f"cut to {length} of {len(data)} bytes"
        bit = min(int(self.place * len(data) * 8), len(data) * 8 - 1)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        return bytes(flipped), f"bit {bit % 8} of byte {bit // 8} of {len(data)} flipped"


class RobustnessCase(Case):
    """A case about the delegates of one program."""

    kind: str

    def __init__(self, program: str) -> None:
        self.program = program
        self.name = f"robustness/{program}/{self.kind}"

    def run(self, example: Any, context: Context) -> Outcome:
        """Try it, if the backend takes the program and runs here."""
        start = time.perf_counter()
        try:
            # Checked first: without a runtime nothing is compiled.
            if not runs(context).runtime_availability().available:
                raise NotApplicable("no runtime")
            items = self.samples(context)
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason), example=example.describe())
        except Exception as error:
            # The rule contract/compiles-what-it-takes reports it.
            detail = f"there is no undamaged blob to start from: {words(error)}"
            return Outcome(Verdict.NOT_APPLICABLE, detail, example=example.describe())
        outcome = self.attempt(example, items, context)
        blame = "backend" if outcome.verdict.is_fault else ""
        seconds = time.perf_counter() - start
        size = sum(len(item.payload.blob) for item in items)
        return replace(
            outcome, example=example.describe(), blame=blame, seconds=seconds, delegates=1, delegate_bytes=size
        )

    def samples(self, context: Context) -> Sequence[Sample]:
        """The program's delegates. Raises NotApplicable if the backend takes nothing of it."""
        return sample(self.program, context)

    @abstractmethod
    def attempt(self, example: Any, items: Sequence[Sample], context: Context) -> Outcome:
        """Try it with the program's delegates."""


class DamageCase(RobustnessCase):
    """Single damages to the blobs, or to the named data, of one program."""

    named = False

    def count(self, context: Context) -> int:
        """The number of damages."""
        raise NotImplementedError

    def examples(self, context: Context) -> Sequence[Damage]:
        """The damages: half of them evenly spread, half towards the beginning, where formats have their headers."""
        source = random.Random(context.seed_of(self.name))
        found = []
        kind = "truncated" if self.kind.endswith("truncated") else "flipped"
        count = self.count(context)
        for number in range(count):
            place = (number // 2 + source.random()) / max(1, count / 2)
            if number % 2:
                place = place**3
            place = 0.0 if number == 0 and kind == "truncated" else min(place, 1.0)
            found.append(Damage(self.program, kind, round(place, 9), source.randrange(1 << 16), self.named))
        return found

    def attempt(self, example: Damage, items: Sequence[Sample], context: Context) -> Outcome:
        """Damage, load, run."""
        if self.named and not items[0].keys:
            return Outcome(Verdict.NOT_APPLICABLE, "the blobs have no named data")
        item = items[example.choice % len(items)]
        payload, what = damaged(item, example)
        return try_payload(payload, item, what, context, is_cut=example.kind == "truncated")

    def snippet(self, example: Damage, context: Context) -> str:
        """A script that does the same damage."""
        imports = f"from delegatekit_conformance.cases.robustness import Damage, show\n{IMPORTS}\n"
        return f"{imports}show({example!r}, {context.script})\n"


class Truncated(DamageCase):
    """Blobs that end too early."""

    kind = "truncated"

    def count(self, context: Context) -> int:
        """As the profile says."""
        return context.profile.truncations


class Flipped(DamageCase):
    """Blobs with one bit flipped."""

    kind = "flipped"

    def count(self, context: Context) -> int:
        """As the profile says."""
        return context.profile.flips


@dataclass(frozen=True)
class Fields:
    """Numbers of a blob replaced, one after the other: offsets, counts, sizes, types and scales are words of it.

    Where they are no words, all parts but the first have single bytes replaced.
    """

    program: str
    #: The part, of this many parts of the words, and the number of the program's delegate.
    part: int
    parts: int
    choice: int
    #: Words of the part that are tried at most.
    most: int

    def describe(self) -> str:
        """One line."""
        return f"{self.program}: words of blob {self.choice} replaced, part {self.part + 1} of {self.parts}"

    def damages(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """The damaged blobs, one at a time: a word of the part gets some of the numbers, the next one the next."""
        in_bytes = self.part > 0 and not has_words(data)
        found = places(data) if in_bytes else range(len(data) // 4)
        stride = self.parts * max(1, -(-len(found) // (self.parts * self.most)))
        chosen = found[self.part :: stride]
        turns = range(_BYTE_TURNS) if in_bytes else _TURNS
        for place, number in ((place, at + more) for more in turns for at, place in enumerate(chosen)):
            if in_bytes:
                yield from byte_replaced(data, place, number)
            else:
                yield from _replaced(data, place, number % len(_NUMBERS))


@dataclass(frozen=True)
class Alike:
    """A number of a blob replaced everywhere, one number after the other: a size that all of it agrees on."""

    program: str
    choice: int
    #: Numbers that are replaced at most, the most frequent first.
    most: int

    def describe(self) -> str:
        """One line."""
        return f"{self.program}: words of blob {self.choice} that are alike replaced together"

    def damages(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """The damaged blobs, one at a time."""
        if not has_words(data):
            yield from alike(data, self.most, _PLACES)
            return
        words = words_of(data)
        known: dict[int, list[int]] = {}
        for word, value in enumerate(words):
            if 0 < value < _SIZES:
                known.setdefault(value, []).append(word)
        several = sorted((found for found in known.values() if 1 < len(found) <= _PLACES), key=len, reverse=True)
        for found in several[: self.most]:
            for name, change in _TOGETHER:
                after = bytearray(data)
                for word in found:
                    after[4 * word : 4 * word + 4] = change(words[word]).to_bytes(4, "little")
                yield bytes(after), f"{len(found)} words, the first at byte {4 * found[0]} of {len(data)}, {name}"


#: Words below this may be sizes; of those in more places, most are something else.
_SIZES, _PLACES = 1 << 16, 64
#: Replacements of equal words.
_TOGETHER: Sequence[tuple[str, Callable[[int], int]]] = (
    ("set to 0", lambda word: 0),
    ("one less", lambda word: word - 1),
    ("one more", lambda word: word + 1),
    ("set to 2^16", lambda word: 1 << 16),
)


def _replaced(data: bytes, word: int, number: int) -> Iterator[tuple[bytes, str]]:
    """The blob with a word replaced by one of `_NUMBERS`, and the change in words; nothing if it stays the same."""
    name, change = _NUMBERS[number]
    before = int.from_bytes(data[4 * word : 4 * word + 4], "little")
    after = change(before) & 0xFFFFFFFF
    if after != before:
        blob = data[: 4 * word] + after.to_bytes(4, "little") + data[4 * word + 4 :]
        yield blob, f"bytes {4 * word} to {4 * word + 3} of {len(data)} {name}"


#: Replacements of a word. The fourth is NaN as a float.
_NUMBERS: Sequence[tuple[str, Callable[[int], int]]] = (
    ("set to 0", lambda word: 0),
    ("one more", lambda word: word + 1),
    ("set to 2^31 - 1", lambda word: 0x7FFFFFFF),
    ("set to 2^32 - 1", lambda word: 0xFFFFFFFF),
    ("one less", lambda word: word - 1),
    ("doubled", lambda word: 2 * word),
    ("negated", lambda word: -word),
    ("with 1 as its upper half", lambda word: word & 0xFFFF | 1 << 16),
    ("with 1 as its lower half", lambda word: word & 0xFFFF0000 | 1),
    ("another small number, or infinity", lambda word: (5 * word + 3) % 16 if word < 16 else 0x7F800000),
)
#: Offset among the numbers at which each turn over the words begins.
_TURNS = (0, 2, 4, 7)
#: Numbers of a byte that are tried.
_BYTE_TURNS = 4
#: Words of a blob tried with a number in each turn for each bit that the profile flips, in parts.
_WORDS, _PARTS = 8, 4
#: Where a runtime has a separate process, which some damages end, one of this many words of an operator is replaced.
_APART = 8
#: One of this many damaged blobs is also given to readers of a blob's content.
_TOLD_OF = 4


class Replaced(RobustnessCase):
    """Blobs with a number replaced."""

    kind = "replaced"

    def examples(self, context: Context) -> Sequence[Words]:
        """Parts of the words of a blob, all of the words where they are few; words that are alike; neighbors."""
        source = random.Random(context.seed_of(self.name))
        flips = context.profile.flips
        most = _WORDS * flips // _PARTS
        parts = [Fields(self.program, part, _PARTS, source.randrange(1 << 16), most) for part in range(_PARTS)]
        some = Alike(self.program, source.randrange(1 << 16), flips // _PARTS)
        neighbors = Balanced(self.program, source.randrange(1 << 16), flips)
        return [*parts, some, neighbors]

    def attempt(self, example: Any, items: Sequence[Sample], context: Context) -> Outcome:
        """Damage, load, run, one word after the other; the first fault counts."""
        found, refused = Outcome(Verdict.NOT_APPLICABLE, "the blob has nothing to replace"), 0
        for number, (payload, what, item) in enumerate(self.payloads(example, items)):
            if number % _TOLD_OF == 0:
                strange = _strangely_told(payload, context)
                if strange:
                    return Outcome(Verdict.VIOLATION, f"{what}: {strange}")
            outcome = try_payload(payload, item, what, context)
            if outcome.verdict.is_fault:
                return outcome
            if found.verdict is not Verdict.UNDETECTED:
                found = outcome
            refused += outcome.damages_refused
        return replace(found, damages_refused=refused)

    def payloads(self, example: Any, items: Sequence[Sample]) -> Iterator[tuple[DelegatePayload, str, Sample]]:
        """The damaged payloads, one at a time, with the change in words and the damaged bytes."""
        item = items[example.choice % len(items)]
        for blob, what in example.damages(bytes(item.payload.blob)):
            yield changed(item.payload, blob), what, item

    def snippet(self, example: Any, context: Context) -> str:
        """A script that does the same damages, and announces each."""
        names = f"{type(example).__name__}, {type(self).__name__}"
        imports = f"from {type(self).__module__} import {names}\nfrom {__name__} import show_words\n{IMPORTS}\n"
        return f"{imports}show_words({type(self).__name__}({self.program!r}), {example!r}, {context.script})\n"


@dataclass(frozen=True)
class Pairs:
    """Words of an operator's blob, at random, each replaced by one of the numbers."""

    operator: str
    dtype: str
    #: Number of pairs of a word and a number, and their seed.
    count: int
    seed: int
    #: Number of the operator's delegate.
    choice: int = 0

    def describe(self) -> str:
        """One line."""
        return f"{self.operator} of {self.dtype}: {self.count} words of its blob replaced"

    def damages(self, data: bytes) -> Iterator[tuple[bytes, str]]:
        """The damaged blobs, one at a time."""
        source = random.Random(self.seed)
        pairs = [(word, number) for word in range(len(data) // 4) for number in range(len(_NUMBERS))]
        for word, number in source.sample(pairs, min(self.count, len(pairs))):
            yield from _replaced(data, word, number)


#: Words of a blob that are replaced, in all ways there are.
Words: TypeAlias = Fields | Alike | Balanced | Pairs

#: Recipes of an operator, of which the first that the backend takes counts.
_RECIPES = 4


class OfOperator(Replaced):
    """Numbers replaced in the blob of one operator: its own arguments, which few programs have."""

    def examples(self, context: Context) -> Sequence[Pairs]:
        """One, if the backend's table has the operator; none in the quick profile: they are a lowering each."""
        if context.profile.name == "quick" or rows_of(self.program, context) == []:
            return []
        count = max(1, context.profile.flips // (_APART if backend_of(context).description.isolated_runtime else 1))
        operator = load_operators()[self.program]
        return [Pairs(self.program, operator.dtypes[0], count, context.seed_of(self.name))]

    def samples(self, context: Context) -> Sequence[Sample]:
        """The delegates of the first of several recipes of which the backend takes something."""
        operator = load_operators()[self.program]
        for recipe in draw(operator.recipes(operator.dtypes[0]), _RECIPES, context.seed_of(self.name))[::-1]:
            program = lower(recipe, context) if recipe.has_elements else None
            if program is not None and delegates(program, context.backend):
                return take_down(self.program, recipe, program, context)
        raise NotApplicable(f"the backend takes none of {_RECIPES} calls")


def _strangely_told(payload: DelegatePayload, context: Context) -> str:
    """The fault of the backend's reported operators of a damaged blob: a refusal is a FormatError."""
    try:
        backend_of(context).blob_operators(
            memoryview(payload.blob), payload.compile_specs, payload.named_data, payload.method
        )
    except FormatError:
        return ""
    except Exception as error:
        return f"blob_operators raises {words(error)}, and no FormatError"
    return ""


class NamedTruncated(Truncated):
    """Named data that end too early."""

    kind = "named-data-truncated"
    named = True

    def count(self, context: Context) -> int:
        """Half as many as of blobs."""
        return max(4, context.profile.truncations // 2)


class NamedFlipped(Flipped):
    """Named data with one bit flipped."""

    kind = "named-data-flipped"
    named = True

    def count(self, context: Context) -> int:
        """A quarter of the blobs'."""
        return max(8, context.profile.flips // 4)


def damaged(item: Sample, damage: Damage) -> tuple[DelegatePayload, str]:
    """The payload with the damage done, and the change in words."""
    payload = item.payload
    if not damage.named:
        blob, what = damage.apply(bytes(payload.blob))
        return changed(payload, blob), what
    key = item.keys[damage.choice // 7 % len(item.keys)]
    data, what = damage.apply(bytes(payload.named_data[key]))
    return changed(payload, named={key: data}), f"named data {key!r}: {what}"


def try_payload(
    payload: DelegatePayload, item: Sample, what: str, context: Context, *, is_cut: bool = False
) -> Outcome:
    """Load and run a damaged payload: an error of DelegateKit's family, or the right answer.

    Other numbers are a fault where the backend claims an integrity check, and where the end of the data `is_cut` off:
    every runtime is given the length of data, so it has read past its end.
    """
    backend = backend_of(context)
    runtime = backend.create_runtime()
    stage = "init"
    handle = None
    outputs = item.blank()
    try:
        handle = runtime.init(payload)
        stage = "execute"
        with torch.no_grad():
            runtime.execute(handle, [tensor.clone() for tensor in item.inputs], outputs)
        stage = "destroy"
    except DelegateKitError as error:
        if isinstance(error.__cause__, RuntimeDiedError):
            return Outcome(Verdict.CRASH, f"{what}: {stage}: {error.what}")
        told = f"{what}: refused by {stage}: {str(error).splitlines()[0]}"
        return Outcome(Verdict.PASSED, told, damages_refused=1)
    except Exception as error:
        return Outcome(Verdict.VIOLATION, f"{what}: {stage} raises {words(error)}, no error of DelegateKit's family")
    finally:
        if handle is not None:
            runtime.destroy(handle)
    if not same(outputs, item.outputs):
        return Outcome(Verdict.PASSED, f"{what}: the answer is right")
    references = [tensor.double() if tensor.is_floating_point() else tensor for tensor in item.outputs]
    precision = backend.compute_precision(context.options)
    compared = compare(outputs, references, item.outputs, precision, item.recipe.accuracy)
    if compared.agrees:
        return Outcome(Verdict.PASSED, f"{what}: the answer is right", error=compared.error)
    if backend.description.integrity_check:
        text = f"{what}: no error, and {compared.difference}; the backend says that it has an integrity check"
        return Outcome(Verdict.VIOLATION, text, error=compared.error)
    if is_cut:
        text = f"{what}: no error, and {compared.difference}: something else was read instead of what is missing"
        return Outcome(Verdict.VIOLATION, text, error=compared.error)
    return Outcome(Verdict.UNDETECTED, f"{what}: no error, and {compared.difference}", error=compared.error)


def show(damage: Damage, context: Context) -> None:
    """Print what a damage does; for snippets."""
    items = sample(damage.program, context)
    item = items[damage.choice % len(items)]
    payload, what = damaged(item, damage)
    print(what, flush=True)
    print(try_payload(payload, item, what, context, is_cut=damage.kind == "truncated"))


def show_words(case: Replaced, example: Any, context: Context) -> None:
    """Print what replacing words does, each before it is done; for snippets."""
    for payload, what, item in case.payloads(example, case.samples(context)):
        print(what, flush=True)
        print(try_payload(payload, item, what, context))


def cases() -> Iterator[Case]:
    """All damages of the specimens; of programs that have more kinds of fields, and of operators, numbers replaced."""
    kinds = (Truncated, Flipped, Replaced, NamedTruncated, NamedFlipped)
    for program in PROGRAMS:
        for kind in kinds:
            yield kind(program)
    yield from map(Replaced, DAMAGED)
    yield from map(OfOperator, load_operators())
