"""Single examples as cases of their own: the attempts on a mutant, in the suite's own workers."""

from __future__ import annotations

import base64
import os
import pickle
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import util
from pathlib import Path
from typing import Any

from delegatekit.plugins import FIRST_IMPORTS, discovery
from delegatekit_toolkit.json_text import decoded, parse, to_json

from ..cases import Case, all_cases
from ..cases.declared.collect import declarations
from ..context import Context
from ..described import Saying, describe
from ..outcome import CaseResult, Outcome, Verdict
from ..runner import Source
from .around import Around
from .example import Seen
from .overlay import put_first

#: A case of one example may take this multiple of its cost (`runner.plan.limit_of`).
_COST_FACTOR = 4.0
#: The name of the case that returns the backend's description of itself.
WORDS = "what the backend says"
#: Start of the error of a worker that would import another plugin than the mutant.
NOT_FOUND = "the mutant is not found"


@dataclass(frozen=True)
class Attempt(Seen):
    """One example that a mutant is tried with."""

    #: CPU seconds after which it counts as a hang.
    limit: float = field(kw_only=True)
    #: True if it is known to have no fault without the change, and the facts here are true; otherwise it was
    #: seen with other sources, or never (then it has no verdict).
    sound: bool = True

    @property
    def name(self) -> str:
        """Unlike that of any other example."""
        return f"{self.case}#{self.index}"


def pack(example: Any) -> str:
    """An example as text."""
    return base64.b85encode(zlib.compress(pickle.dumps(example), 1)).decode()


def unpack(text: str) -> Any:
    """The inverse of `pack`, for texts that this user's own runs have written."""
    return pickle.loads(content(text))


def content(text: str) -> bytes:
    """The content that `pack` has packed, where the texts of an example occur unchanged."""
    return zlib.decompress(base64.b85decode(text))


class Chosen(Around):
    """One example of a case."""

    def __init__(self, case: Case, attempt: Attempt, context: Context) -> None:
        super().__init__(case, name=attempt.name, context=context)
        self._attempt = attempt

    @property
    def cost(self) -> float:
        """A cost by which the runner treats an example beyond the attempt's limit as a hang."""
        return self._attempt.limit / _COST_FACTOR

    def examples(self, context: Context) -> Sequence[Any]:
        """The one."""
        return (unpack(self._attempt.packed),)

    def further(self, first: Sequence[Any], context: Context) -> Sequence[Any]:
        """None."""
        return ()


@dataclass(frozen=True)
class Spoken:
    """A backend's description of itself in a worker, and the files that were imported for it."""

    saying: Saying
    #: By path in the plugin's folder.
    files: tuple[str, ...]


class Words(Case):
    """Asks the backend for its description of itself; the detail of the outcome is `Spoken`, as JSON."""

    name = WORDS

    def __init__(self, context: Context, folder: str, package: str) -> None:
        self._context = context
        self._folder = Path(folder) / package

    def examples(self, context: Context) -> Sequence[str]:
        """The one question."""
        return (WORDS,)

    def run(self, example: str, context: Context) -> Outcome:
        """The backend's description of itself."""
        backend = discovery.get_backend(self._context.backend)
        saying = Saying(describe(backend, self._context.options), declarations(self._context))
        places = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        paths = [Path(place) for place in places if isinstance(place, str)]
        files = sorted(path.relative_to(self._folder).as_posix() for path in paths if path.is_relative_to(self._folder))
        return Outcome(Verdict.PASSED, to_json(Spoken(saying, tuple(files)), indent=None, compact=True))


def spoken(result: CaseResult) -> Spoken | None:
    """The result of the case `Words`; None if it timed out."""
    if result.verdict is not Verdict.PASSED:
        return None
    return decoded(Spoken, parse(result.detail.encode(), WORDS), WORDS)


class Placeholder(Case):
    """Represents a case in the supervising process: its worker has the case itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def examples(self, context: Context) -> Sequence[Any]:
        """None: the worker has them."""
        return ()

    def run(self, example: Any, context: Context) -> Any:
        """Never called."""
        raise NotImplementedError


def placeholders(attempts: Iterable[Attempt]) -> Mapping[str, Case]:
    """Placeholders for attempts in the supervising process."""
    return {name: Placeholder(name) for name in (*(attempt.name for attempt in attempts), WORDS)}


def chosen_cases(
    context: Context,
    *,
    of: Source = all_cases,
    attempts: Sequence[Attempt] = (),
    first: str = "",
    package: str = "",
    timeout: float = 60.0,
) -> Mapping[str, Chosen]:
    """The attempts as cases of the plugin `package` in the folder `first`, in a worker that has not imported it.

    `timeout` is the context's own, which cases get; that of `context` leaves the limits to the attempts.
    Raises RuntimeError if the plugin would be found elsewhere: nothing would be tested.
    """
    if first:
        import_from(first, package)
    off_first_imports()
    own = replace(context, timeout=timeout)
    cases = of(own)
    return {attempt.name: Chosen(cases[attempt.case], attempt, own) for attempt in attempts}


def speaking_cases(context: Context, *, first: str, package: str, **given: Any) -> Mapping[str, Case]:
    """`chosen_cases`, with the one that asks the backend for its description of itself."""
    cases = chosen_cases(context, first=first, package=package, **given)
    return {**cases, WORDS: Words(context, first, package)}


def import_from(folder: str, package: str) -> None:
    """Let this process, which has not imported the package, find it in the folder.

    Raises RuntimeError if it would find another.
    """
    put_first(folder)
    found = util.find_spec(package)
    if found is None or found.origin is None or not Path(found.origin).is_relative_to(folder):
        raise RuntimeError(f"{NOT_FOUND}: {package} is at {found and found.origin}, not in {folder}")


def off_first_imports() -> None:
    """Import plugins without a first try in a separate process, which is cached for the user's later runs."""
    os.environ[FIRST_IMPORTS] = "off"
