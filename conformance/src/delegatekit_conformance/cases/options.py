"""Every value of every option of a backend, each with a sample of cases and the precision that it declares for it.

The cases are generated from the options dataclass: "options/weights=float16". An example is the name of another case,
which is tried with that value beside the options of the run. Pairs and triples of options have a case of their own.
"""

from __future__ import annotations

import gc
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from delegatekit.plugins import discovery
from delegatekit_api import BackendOptions, DelegateKitError, OptionError
from delegatekit_toolkit.accuracy import ROUNDOFF, tolerance

from ..context import Context
from ..declaration import Measured
from ..outcome import Outcome, Verdict, worst_of
from ..recipe import Recipe
from ..trial import try_recipe, try_subject
from .base import Case
from .contract.options import values_of
from .specimens import DECODER, DYNAMIC, JOINED_SIZES, LARGE, QUANTIZED_SPECIMENS, SPECIMENS, missing_compiler, takes
from .state import accumulate
from .subjects import subject_of

#: Operators that options change most often: products, sums, functions, sizes, integers and quantized numbers.
SAMPLE = (
    *("arithmetic", "linear", "convolution", "softmax", "reduction", "movement", "quantized linear", "dynamic"),
    *("large weights", "joined sizes", "decoder", "kept buffer"),
)
_LARGE, _KEPT = "large weights", "kept buffer"
#: The sample of the quick profile, and its additions for the first and the last word of an option.
_SHORT = (_LARGE, "softmax", "movement", "joined sizes")
_AT_ENDS = ("decoder", _KEPT)
#: Programs whose results show in which precision they were computed.
_ROUNDED = ("linear", "convolution", "matmul")
#: Texts for options that take names of operators; besides, quoted words of their help.
_WORDS = ("add", "linear", "conv2d")
_QUOTED = re.compile(r"""["'`]([^"'`\s]+)["'`]""")
#: Programs that are tried with options together, and the number of these options.
_TOGETHER = (_LARGE, "softmax", "quantized linear")
_SEVERAL = 3
#: Possible bounds of options of whole numbers and of fractions.
_NUMBERS: dict[type, tuple[Any, ...]] = {int: (0, 1, 16, 1 << 12, 1 << 20), float: (0.0, 0.5, 1.0)}


class OptionCase(Case):
    """The sample of cases with one value of one option; the last example judges the precision that is declared."""

    def __init__(self, option: str, value: Any, *, is_first: bool = True, at_end: bool = False) -> None:
        self.name = f"options/{option}={text(value)}"
        self._option, self._value, self._is_first, self._at_end = option, value, is_first, at_end

    @property
    def cost(self) -> float:
        """A few small programs."""
        return 2.0

    def examples(self, context: Context) -> Sequence[str]:
        """Names of programs: fewer in the quick profile, where a compiler's caching is checked once for each option."""
        quick = context.profile.name == "quick"
        sample = (*_short(context), *(_AT_ENDS if self._at_end else ())) if quick else (*SAMPLE, *_integers(context))
        names = (name for name in sample if name != _LARGE or not _is_whole(self._value))
        return (*names, *((_ANEW,) if self._is_first or not quick else ()), _PRECISION)

    def run(self, example: str, context: Context) -> Outcome:
        """Try the program with the option, or judge the declared precision."""
        chosen = _chosen(context, self._option, self._value)
        refusal = _refusal(chosen)
        if refusal is not None:
            return Outcome(Verdict.NOT_APPLICABLE, refusal, example=example)
        if example == _PRECISION:
            return replace(_precise(chosen, self._option), example=example)
        if example == _ANEW:
            return replace(_anew(chosen), example=example)
        if example == _KEPT:
            return replace(try_subject(subject_of(*accumulate(), stateful=True), chosen), example=example)
        return replace(try_recipe(_program(example), chosen), example=example)

    def snippet(self, example: str, context: Context) -> str:
        """The program as Python; the options are in the case's name."""
        return "" if example in (_ANEW, _KEPT, _PRECISION) else _program(example).snippet(context.backend)


_PRECISION = "the precision that is declared"
_ANEW = "programs with other weights, one after another"
#: This many programs are lowered, each freed before the next: the next reuses its memory.
_PROGRAMS = 5


def _chosen(context: Context, option: str, value: Any) -> Context:
    """The context with the option; if that chooses a target, so that its programs run here."""
    targets = discovery.get_backend(context.backend).targets()
    target = next((one for one in targets if one.options == {option: value}), None)
    return context.for_target(target) if target else context.beside({option: value})


def _short(context: Context) -> Sequence[str]:
    """The sample of the quick profile."""
    return _integers(context) or _SHORT


def _integers(context: Context) -> Sequence[str]:
    """The quantized programs, if the backend takes only these; else none."""
    others = [name for name in SPECIMENS if name not in QUANTIZED_SPECIMENS]
    if any(takes(name, context) for name in others) or not any(takes(name, context) for name in QUANTIZED_SPECIMENS):
        return ()
    return tuple(QUANTIZED_SPECIMENS)


def _program(name: str) -> Recipe:
    others = {"dynamic": DYNAMIC, "joined sizes": JOINED_SIZES, "decoder": DECODER, _LARGE: LARGE}
    return others.get(name) or SPECIMENS[name]


@dataclass(frozen=True)
class Together:
    """Values of several options, with which a program is tried."""

    options: tuple[tuple[str, Any], ...]

    def describe(self) -> str:
        """One line."""
        return ", ".join(f"{name}={text(value)}" for name, value in self.options)


class TogetherCase(Case):
    """Values of several options together, at random: some act only beside another."""

    name = "options/together"

    def __init__(self, known: Sequence[tuple[str, Any]]) -> None:
        self._known = known

    @property
    def cost(self) -> float:
        """Many small programs."""
        return 5.0

    def examples(self, context: Context) -> Sequence[Together]:
        """As many for each sequence of the profile, with compatible values that are not the run's own."""
        source = random.Random(context.seed_of(self.name))
        options = discovery.get_backend(context.backend).description.options
        groups: dict[str, list[Any]] = {}
        for name, value in self._known:
            if _is_whole(value):
                continue
            groups.setdefault(name, []).append(value)
        found: dict[str, Together] = {}
        for _ in range(20 * context.profile.sequences):
            names = source.sample(sorted(groups), min(len(groups), source.randint(2, _SEVERAL)))
            example = Together(tuple((name, source.choice(groups[name])) for name in names))
            with suppress(OptionError):
                options.from_mapping({**context.options, **dict(example.options)})
                found.setdefault(example.describe(), example)
            if len(found) == context.profile.sequences:
                break
        return list(found.values()) if len(groups) > 1 else []

    def run(self, example: Together, context: Context) -> Outcome:
        """Try the programs with the options; the gravest outcome."""
        chosen = context.beside(dict(example.options))
        refusal = _refusal(chosen)
        if refusal is not None:
            return Outcome(Verdict.NOT_APPLICABLE, refusal, example=example.describe())
        outcomes = [try_recipe(_program(name), chosen) for name in _integers(context) or _TOGETHER]
        return replace(worst_of(outcomes), example=example.describe())


def _is_whole(value: Any) -> bool:
    """True if a fraction is 1: nothing of the weights may be left then."""
    return isinstance(value, float) and value >= 1.0


def _refusal(context: Context) -> str | None:
    """The backend's reason for refusing the options, together or as the partitioner's, or that it cannot compile with
    them on this computer; None if it takes them."""
    backend = discovery.get_backend(context.backend)
    try:
        backend.create_partitioner(backend.make_options(context.options))
    except OptionError as error:
        return str(error)
    except DelegateKitError as error:
        return str(error) if "OptionError" in str(error) or "leave_out" in str(error) else None
    return missing_compiler(context) or None


def _anew(context: Context) -> Outcome:
    """Lower and run programs that differ in their weights alone; the gravest outcome."""
    outcomes = []
    for name in _integers(context)[1:] or _ROUNDED[:2]:
        for number in range(_PROGRAMS):
            outcomes.append(try_recipe(SPECIMENS[name].reseeded(number + 1), replace(context, stock=False)))
            gc.collect()
    return worst_of(outcomes)


def _precise(context: Context, option: str) -> Outcome:
    """Judge the precision that is declared with an option: results need it, and are not ten times as exact.

    If the programs are as exact as a finer precision requires, the coarser declaration is unnecessary.
    """
    told = discovery.get_backend(context.backend).compute_precision(context.options)
    if ROUNDOFF.get(told, 0.0) <= ROUNDOFF["float32"]:
        return Outcome(Verdict.NOT_APPLICABLE, f"the precision is {told}: it loosens nothing")
    outcomes = [try_recipe(SPECIMENS[name], replace(context, stock=False)) for name in _ROUNDED]
    delegated = [item for item in outcomes if item.verdict is Verdict.DELEGATED and item.error is not None]
    worst = worst_of(outcomes)
    if worst.verdict.is_fault:
        return worst
    if len(delegated) < len(_ROUNDED):
        return Outcome(Verdict.NOT_APPLICABLE, "the programs that show a precision are not all delegated")
    finer = max((name for name in ROUNDOFF if ROUNDOFF[name] < ROUNDOFF[told]), key=ROUNDOFF.__getitem__)
    # Relative to the tolerance of the told precision: the same for every length of sums.
    closeness = max((item.error or 0.0) / (item.tolerance or 1.0) for item in delegated)
    limit = tolerance("float32", finer, 1) / tolerance("float32", told, 1)
    measured = (Measured(f"compute_precision:{option}", closeness * ROUNDOFF[told], len(delegated)),)
    if closeness <= limit:
        return Outcome(
            Verdict.VIOLATION,
            f"compute_precision is {told}, but linear layers, convolutions and products are as exact as {finer} "
            f"asks for: {1 / max(closeness, 1e-12):,.0f} times as exact as declared",
            blame="backend",
            measured=measured,
        )
    return Outcome(Verdict.PASSED, f"{told}: errors are {closeness:.2g} of what it allows", measured=measured)


def values(options: type[BackendOptions]) -> Iterator[tuple[str, Any]]:
    """All values of all options that can be listed, numbers at bounds that the option takes; the defaults, too."""
    seen: set[tuple[str, str]] = set()
    found = list(values_of(options, _WORDS))
    for row in options.describe():
        for words in _QUOTED.findall(row.help):
            found += [(row.name, words), (row.name, (words,))]
    for row in options.describe():
        found += [(row.name, number) for number in _NUMBERS.get(type(row.default), ())]
    for name, value in found:
        try:
            options.from_mapping({name: value})
        except OptionError:
            continue
        if (name, repr(value)) not in seen:
            seen.add((name, repr(value)))
            yield name, value


def _ends(choices: Sequence[Any] | None) -> tuple[Any, ...]:
    """The first and the last of an option's words: the oldest device and the newest, for example."""
    return (choices[0], choices[-1]) if choices and all(isinstance(item, str) for item in choices) else ()


def text(value: Any) -> str:
    """A value as the command line takes it, in the name of a case."""
    if isinstance(value, tuple | frozenset):
        return ",".join(sorted(map(str, value))) or "none"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def cases_for(context: Context) -> Iterator[Case]:
    """A case for each value that is not the run's own; none if the backend cannot be asked."""
    try:
        backend = discovery.get_backend(context.backend)
        chosen = backend.make_options(context.options)
        found = list(values(backend.description.options))
    except DelegateKitError:
        return
    names = set()
    others: list[tuple[str, Any]] = []
    ends = {(row.name, end) for row in backend.description.options.describe() for end in _ends(row.choices)}
    for name, value in found:
        case = OptionCase(name, value, is_first=name not in dict(others), at_end=(name, value) in ends)
        if value != getattr(chosen, name) and case.name not in names:
            names.add(case.name)
            others.append((name, value))
            yield case
    yield TogetherCase(others)
