"""Options whose values are about one program, such as the shapes of its inputs: a vendor's file says which, and what
comes of them.

The file is `options.toml` in the package of the plugin's module. Programs are the suite's: those of `specimens`, whose
changing sizes `calls` and `refused` list, one number for each, in the order in which the recipe has them; where none
changes, `calls = [[]]`. Their inputs are called inputs_0, inputs_1 and so on.

    [[program]]
    name = "two shapes"            # in the name of the case: "options/program/two shapes"
    program = "dynamic"
    options = { shapes = ["inputs_0:9x6", "inputs_0:2x6"] }
    calls = [[9], [2]]             # sizes of calls that are right
    refused = [[7]]                # sizes of calls that are refused

    [[program]]
    name = "one shape"
    program = "dynamic"
    options = { shapes = ["inputs_0:9x6"] }
    error = "at least two shapes"  # lowering raises OptionError with these words

    [[program]]
    name = "a file of the user's"
    program = "linear"
    options = { settings = "own.ini" }  # the path of the file, while the program is tried
    files = { "own.ini" = "[clock]" }
    calls = [[]]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_api import DelegateKitError, OptionError

from .. import vendor
from ..context import Context
from ..errors import InputError
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..trial import try_recipe, words
from .base import Broken, Case
from .specimens import CLUSTERS, DYNAMIC, JOINED_SIZES, LARGE, SPECIMENS, TWO_SIZES, delegates, lower

#: The file's name in the plugin's package.
FILE: Final = "options.toml"

_PROGRAMS: Final[Mapping[str, Recipe]] = {
    **SPECIMENS,
    "dynamic": DYNAMIC,
    "joined sizes": JOINED_SIZES,
    "two sizes": TWO_SIZES,
    "large weights": LARGE,
    "weights near four numbers": CLUSTERS,
}
#: What is changed in a file: where it is valid, so is another number.
_LAST_DIGIT: Final = re.compile(r"\d(?=\D*\Z)")


@dataclass(frozen=True)
class Choice:
    """Options for one program, and what comes of them. Raises InputError for what the file may not say."""

    name: str
    program: str
    options: Mapping[str, Any]
    calls: tuple[tuple[int, ...], ...] = ()
    refused: tuple[tuple[int, ...], ...] = ()
    #: Words of the error that lowering raises; empty if it is lowered.
    error: str = ""
    #: Names and texts of files that options name.
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    where: str = field(default=FILE, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.program not in _PROGRAMS:
            raise self._wrong(f"there is no program {self.program!r}: {', '.join(_PROGRAMS)}")
        count = len(self.recipe.sizes)
        if any(len(call) != count for call in (*self.calls, *self.refused)):
            raise self._wrong(f"the program has {count} sizes that change: each call is so many numbers")
        if bool(self.error) == bool(self.calls):
            raise self._wrong("say either calls, which are right, or error, the words of the refusal")

    @property
    def recipe(self) -> Recipe:
        """The program."""
        return _PROGRAMS[self.program]

    def describe(self) -> str:
        """One line."""
        return f"{self.program} with {', '.join(f'{name}={value}' for name, value in self.options.items())}"

    def options_in(self, folder: Path) -> Mapping[str, Any]:
        """The options; the files are written into a folder."""
        for name, content in self.files.items():
            (folder / name).write_text(content, encoding="utf-8")
        named = {name for name, value in self.options.items() if isinstance(value, str) and value in self.files}
        return {name: str(folder / value) if name in named else value for name, value in self.options.items()}

    def _wrong(self, what: str) -> InputError:
        return InputError(f"program {self.name}: {what}", where=self.where)


def choices_of(backend: str) -> Sequence[Choice]:
    """What a backend's file says; nothing if its wheel has none. Raises InputError for what is no such file."""
    found = vendor.file_of(backend, FILE)
    return parse(*found) if found else ()


def parse(text: str, where: str = FILE) -> Sequence[Choice]:
    """What a file's text says. Raises InputError, with `where`."""
    values = vendor.values_of(text, where)
    try:
        return tuple(_choice(where, **entry) for entry in values["program"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"says no options of programs: {error}", where=where) from error


def _choice(where: str, calls: Any = (), refused: Any = (), **fields: Any) -> Choice:
    return Choice(calls=tuple(map(tuple, calls)), refused=tuple(map(tuple, refused)), where=where, **fields)


class ProgramCase(Case):
    """One program with the options that a vendor's file says."""

    def __init__(self, choice: Choice) -> None:
        self.name = f"options/program/{choice.name}"
        self._choice = choice

    def examples(self, context: Context) -> Sequence[Choice]:
        """What the file says of it."""
        return (self._choice,)

    def run(self, example: Choice, context: Context) -> Outcome:
        """Lower it with the options, and call it with the sizes."""
        with TemporaryDirectory(prefix="conformance-options-") as folder:
            chosen = context.beside(example.options_in(Path(folder)))
            outcome = _refused(example, chosen) if example.error else _lowered(example, chosen)
            if not example.error and not outcome.verdict.is_fault:
                outcome = _with_other_files(outcome, example, chosen, Path(folder))
        return replace(outcome, example=example.describe(), detail=outcome.detail.replace(folder, "."))

    def snippet(self, example: Choice, context: Context) -> str:
        """The program as Python; the options are in the example's line."""
        return example.recipe.snippet(context.backend)


def _lowered(example: Choice, context: Context) -> Outcome:
    """What comes of the calls that are right, and of those that are refused."""
    outcome = try_recipe(replace(example.recipe, calls=example.calls), context)
    if outcome.verdict is Verdict.REFUSED:
        return _broken(f"is refused: {outcome.detail}")
    if outcome.verdict.is_fault or not outcome.delegates:
        return outcome
    return _with_refusals(outcome, example, context)


def _refused(example: Choice, context: Context) -> Outcome:
    """Whether lowering refuses the options, in the words of the file."""
    try:
        lower(example.recipe, context)
    except OptionError as error:
        if example.error in str(error):
            return Outcome(Verdict.PASSED, str(error))
        return _broken(f"is refused with other words than {example.error!r}: {words(error)}")
    except Exception as error:
        return _broken(f"ends in another error than OptionError: {words(error)}")
    return _broken(f"is lowered, and should be refused: {example.error}")


def _with_refusals(outcome: Outcome, example: Choice, context: Context) -> Outcome:
    """The outcome, unless a call that the file says is refused is none."""
    try:
        _check_refused(example, context)
    except Broken as error:
        return replace(outcome, verdict=Verdict.VIOLATION, detail=str(error), blame="backend")
    return outcome


def _check_refused(example: Choice, context: Context) -> None:
    program = lower(example.recipe, context)
    if not delegates(program, context.backend) or not example.refused:
        return
    method = delegatekit.load(program.buffer)["forward"]
    for sizes in example.refused:
        try:
            method(*example.recipe.inputs(sizes))
        except DelegateKitError:
            continue
        except Exception as error:
            raise Broken(f"a call with sizes {sizes} ends in {words(error)}") from error
        raise Broken(f"a call with sizes {sizes}, which the options leave out, is not refused")


def _with_other_files(outcome: Outcome, example: Choice, context: Context, folder: Path) -> Outcome:
    """The outcome, unless the compiler's version is the same with another digit in a file that options name.

    Results of compilers are kept under that version and the options, which have no more than the file's path.
    """
    backend = discovery.get_backend(context.backend)
    options = backend.make_options(context.options)
    version = backend.compiler_version(options)
    for name, content in example.files.items():
        (folder / name).write_text(_LAST_DIGIT.sub(_next_digit, content), encoding="utf-8")
        with suppress(OptionError):
            if version is not None and backend.compiler_version(options) == version:
                return _broken(
                    f"the compiler's version is {version!r} whatever {name} says: a kept result may be another's"
                )
    return outcome


def _next_digit(found: re.Match[str]) -> str:
    return str(int(found.group()) % 9 + 1)


def _broken(detail: str) -> Outcome:
    return Outcome(Verdict.VIOLATION, detail, blame="backend")


def cases_for(context: Context) -> Iterator[Case]:
    """A case for each entry of the backend's file."""
    return map(ProgramCase, choices_of(context.backend))
