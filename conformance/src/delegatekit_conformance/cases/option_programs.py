"""Options whose values are about one program, such as the shapes of its inputs: a vendor's file lists them, and
their results.

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

    [[program]]
    name = "a folder that is written"
    program = "linear"
    options = { traces = "traces" }  # the path of a new folder
    written = ["traces/forward.bin"]  # files that are there after lowering, and not empty
    calls = [[]]

    [[program]]
    name = "an SDK of nothing"
    program = "linear"
    options = {}
    environment = { ACME_SDK = "sdk" }  # names and folders of files become paths here, too
    files = { "sdk/lib/libacme.so" = "" }
    failure = "cannot be loaded"  # lowering raises LoweringError with these words
    unavailable = "cannot be loaded"  # reason of a runtime that starts in this environment
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import delegatekit
from delegatekit.plugins import discovery
from delegatekit.plugins.apart import end_all
from delegatekit_api import DelegateKitError, LoweringError, OptionError

from .. import vendor
from ..context import Context
from ..errors import InputError
from ..outcome import Outcome, Verdict
from ..recipe import Recipe
from ..trial import try_recipe, words
from .base import Broken, Case
from .environment import environment
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
#: The change of a file: where a number is valid, so is another one.
_LAST_DIGIT: Final = re.compile(r"\d(?=\D*\Z)")


@dataclass(frozen=True)
class Choice:
    """Options for one program, and their results. Raises InputError for invalid entries."""

    name: str
    program: str
    options: Mapping[str, Any]
    calls: tuple[tuple[int, ...], ...] = ()
    refused: tuple[tuple[int, ...], ...] = ()
    #: Words of the OptionError, or of the LoweringError, that lowering raises; both empty if it is lowered.
    error: str = ""
    failure: str = ""
    #: Names and texts of files that options and environment name.
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Names of files that lowering writes.
    written: tuple[str, ...] = ()
    #: Environment variables meanwhile, and words of why a runtime that starts with them is not available.
    environment: Mapping[str, str] = field(default_factory=dict)
    unavailable: str = ""
    where: str = field(default=FILE, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.program not in _PROGRAMS:
            raise self._wrong(f"there is no program {self.program!r}: {', '.join(_PROGRAMS)}")
        count = len(self.recipe.sizes)
        if any(len(call) != count for call in (*self.calls, *self.refused)):
            raise self._wrong(f"the program has {count} sizes that change: each call is so many numbers")
        if sum(map(bool, (self.error, self.failure, self.calls))) != 1:
            raise self._wrong("say either calls, which are right, or error or failure, the words of the refusal")
        if (self.environment or self.unavailable) and not self.failure:
            raise self._wrong("an environment is that of a failure")

    @property
    def recipe(self) -> Recipe:
        """The program."""
        return _PROGRAMS[self.program]

    def describe(self) -> str:
        """One line."""
        chosen = {**self.options, **self.environment}
        return f"{self.program} with {', '.join(f'{name}={value}' for name, value in chosen.items()) or 'no options'}"

    def options_in(self, folder: Path) -> Mapping[str, Any]:
        """The options; the files are written into a folder."""
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content, encoding="utf-8")
        return self._placed(self.options, folder)

    def environment_in(self, folder: Path) -> Mapping[str, str]:
        """The environment variables, with files in the folder."""
        return self._placed(self.environment, folder)

    def _placed(self, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Values, with paths in a folder for those that name a file, or a folder with files."""
        paths = [Path(name) for name in (*self.files, *self.written)]
        known = {str(item) for path in paths for item in (path, *path.parents)}
        return {
            name: str(folder / value) if isinstance(value, str) and value in known else value
            for name, value in values.items()
        }

    def _wrong(self, what: str) -> InputError:
        return InputError(f"program {self.name}: {what}", where=self.where)


def choices_of(backend: str) -> Sequence[Choice]:
    """The entries of a backend's file; none if its wheel has none. Raises InputError for an invalid file."""
    found = vendor.file_of(backend, FILE)
    return parse(*found) if found else ()


def parse(text: str, where: str = FILE) -> Sequence[Choice]:
    """The entries of a file's text. Raises InputError, with `where`."""
    return vendor.entries_of(text, where, "program", partial(_choice, where), "options of programs")


def _choice(where: str, calls: Any = (), refused: Any = (), written: Any = (), **fields: Any) -> Choice:
    each: dict[str, Any] = {
        "calls": tuple(map(tuple, calls)),
        "refused": tuple(map(tuple, refused)),
        "written": tuple(written),
    }
    return Choice(**each, where=where, **fields)


class ProgramCase(Case):
    """One program with the options of a vendor's file."""

    def __init__(self, choice: Choice) -> None:
        self.name = f"options/program/{choice.name}"
        self._choice = choice

    def examples(self, context: Context) -> Sequence[Choice]:
        """The entry of the file."""
        return (self._choice,)

    def run(self, example: Choice, context: Context) -> Outcome:
        """Lower it with the options, and call it with the sizes."""
        with TemporaryDirectory(prefix="conformance-options-") as folder:
            chosen = context.beside(example.options_in(Path(folder)))
            if example.calls:
                outcome = _lowered(example, chosen, Path(folder))
            else:
                with environment(example.environment_in(Path(folder))):
                    outcome = _refused(example, chosen)
        return replace(outcome, example=example.describe(), detail=outcome.detail.replace(folder, "."))

    def snippet(self, example: Choice, context: Context) -> str:
        """The program as Python; the options are in the example's line."""
        return example.recipe.snippet(context.backend)


def _lowered(example: Choice, context: Context, folder: Path) -> Outcome:
    """The outcome of the valid calls, and of the refused ones; and the written files."""
    outcome = try_recipe(replace(example.recipe, calls=example.calls), context)
    if outcome.verdict is Verdict.REFUSED:
        return _broken(f"is refused: {outcome.detail}")
    if outcome.delegates and not outcome.verdict.is_fault:
        for name in example.written:
            if not (folder / name).is_file() or not (folder / name).stat().st_size:
                return _broken(f"lowering does not write {name}")
        outcome = _with_refusals(outcome, example, context)
    return outcome if outcome.verdict.is_fault else _with_other_files(outcome, example, context, folder)


def _refused(example: Choice, context: Context) -> Outcome:
    """Passes if lowering refuses the options, or fails, in the words of the file."""
    family, wanted = (LoweringError, example.failure) if example.failure else (OptionError, example.error)
    try:
        lower(example.recipe, context)
    except family as error:
        if wanted in str(error):
            return _unavailable(example, context) or Outcome(Verdict.PASSED, str(error))
        return _broken(f"is refused with other words than {wanted!r}: {words(error)}")
    except Exception as error:
        return _broken(f"ends in another error than {family.__name__}: {words(error)}")
    return _broken(f"is lowered, and should be refused: {wanted}")


def _unavailable(example: Choice, context: Context) -> Outcome | None:
    """The fault in the report of a newly started runtime about itself; None if there is none."""
    if not example.unavailable:
        return None
    end_all()
    try:
        found = discovery.get_backend(context.backend).runtime_availability()
    finally:
        end_all()
    if found.available:
        return _broken(f"the runtime says that it is available, and should not be: {example.unavailable}")
    if example.unavailable not in found.reason:
        return _broken(f"the runtime says other words than {example.unavailable!r}: {found.reason}")
    return None


def _with_refusals(outcome: Outcome, example: Choice, context: Context) -> Outcome:
    """The outcome, unless a call is not refused although the file says so."""
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
