"""The world that a sequence's steps act on: the sessions that are alive, and the script of the actions."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import delegatekit
from delegatekit_api import DelegateKitError, ExecutionError
from delegatekit_toolkit.accuracy import Comparison, compare

from ...outcome import Verdict
from ...trial import flatten, words
from .library import Library, Lowered, Wanted
from .pairs import Answer, Pair, together
from .programs import Kind
from .script import lowering

#: Sessions that live at the same time, at most.
_MOST = 5


class Wrong(Exception):  # noqa: N818  it is a verdict
    """A living session that does not answer as its model does; or a step that fails."""

    def __init__(self, verdict: Verdict, detail: str, compared: Comparison | None = None) -> None:
        super().__init__(detail)
        self.verdict, self.detail, self.compared = verdict, detail, compared or Comparison()


@dataclass
class Living:
    """A session that is alive, with its model."""

    name: str
    pair: Pair
    lowered: Lowered
    #: The program that was loaded, and its variable in the script.
    loaded: Any
    root: str
    #: Seed and size of the last call's inputs, by method.
    last: dict[str, tuple[int, int]]

    @property
    def methods(self) -> list[str]:
        """Names of the program's methods."""
        return list(self.pair.eager)


class World:
    """Executes steps, reports faults, and writes the script of both.

    Numbers that name a program or a session are taken modulo their count, so that each part of a sequence is a
    sequence. In a `dry` world nothing runs: it only writes.
    """

    def __init__(self, library: Library, kinds: Sequence[Kind], first: int, folder: Path, *, dry: bool = False) -> None:
        self.library, self._kinds, self._first, self.dry = library, kinds, first, dry
        self.folder = folder
        self.living: list[Living] = []
        self.script: list[str] = []
        self.used: dict[Wanted, Lowered] = {}
        #: Further names of the script.
        self.mentioned: set[Wanted] = set()
        self.worst = Comparison()
        self._count = 0

    # -- programs and sessions ---------------------------------------------------------------------------------------

    def session(self, number: int) -> Living | None:
        """One of the living sessions; None if there are none."""
        return self.living[number % len(self.living)] if self.living else None

    def wanted(self, number: int, seed: int, external: bool = False, option: int = -1) -> Wanted:
        """The program of a number."""
        return Wanted(self._kinds[(self._first + number) % len(self._kinds)], seed, external, option)

    def lowered(self, wanted: Wanted) -> Lowered:
        """A program, lowered before or now."""
        if wanted not in self.used:
            try:
                self.used[wanted] = self.library.lowered(wanted)
            except Exception as error:
                raise Wrong(Verdict.LOWERING_ERROR, f"{wanted.kind.name}: {words(error)}") from error
            self.script.append(f"{wanted.name} = {lowering(wanted, self.library)}")
        return self.used[wanted]

    def load(self, number: int, seed: int, saved: bool, external: bool = False) -> Living | None:
        """Load a program, from bytes or from files that other programs were saved to before; its own session lives."""
        if len(self.living) >= _MOST:
            return None
        lowered = self.lowered(self.wanted(number, seed, external))
        name, root = lowered.wanted.name, self._new("program")
        path = self.folder / f"{number}.pte" if saved else None
        if path is not None:
            self.script.append(f'*data, path = {name}.save(folder / "{path.name}")')
            self.script.append(f"{root} = delegatekit.load(path, data=data)")
        else:
            data = f", data=list({name}.data_files.values())" if external else ""
            self.script.append(f"{root} = delegatekit.load({name}.buffer{data})")
        loaded = None if self.dry else self._loaded(lowered, path)
        return self._join(loaded, lowered, loaded, root, root)

    def _loaded(self, lowered: Lowered, path: Path | None) -> Any:
        try:
            if path is None:
                return delegatekit.load(lowered.program.buffer, data=lowered.data)
            *data, last = lowered.program.save(path)
            return delegatekit.load(last, data=data)
        except Exception as error:
            raise Wrong(Verdict.LOAD_ERROR, f"{lowered.kind.name}: {words(error)}") from error

    def open(self, number: int) -> Living | None:
        """A further session of a loaded program."""
        one = self.session(number)
        if one is None or len(self.living) >= _MOST:
            return None
        name = self._new("session")
        self.script.append(f"{name} = {one.root}.new_session()")
        session = None if self.dry else one.loaded.new_session()
        return self._join(session, one.lowered, one.loaded, name, one.root)

    def _join(self, session: Any, lowered: Lowered, loaded: Any, name: str, root: str) -> Living:
        build = lowered.kind.build
        pair = Pair(session, build, lowered.seed)
        made = Living(self._new("pair"), pair, lowered, loaded, root, {})
        self.script.append(f"{made.name} = Pair({name}, {build.__name__}, {lowered.seed})")
        self.living.append(made)
        return made

    def close(self, number: int, whole: bool) -> None:
        """Close a session, or the whole program with all its sessions."""
        one = self.session(number)
        if one is None:
            return
        gone = [other for other in self.living if other is one or (whole and other.root == one.root)]
        self.script.append(f"{one.root}.close()" if whole else f"{one.name}.session.close()")
        self.living = [other for other in self.living if other not in gone]
        if self.dry:
            return
        if one.pair.session is one.loaded:  # closing a program closes all its sessions
            self.living = [other for other in self.living if other.root != one.root]
        try:
            (one.loaded if whole else one.pair.session).close()
        except Exception as error:
            raise Wrong(Verdict.RUN_ERROR, f"closing {one.lowered.kind.name} fails: {words(error)}") from error
        for other in gone:
            self._check_closed(other)

    def _check_closed(self, one: Living) -> None:
        for method in one.methods:
            if method not in one.last:
                continue  # it was never made, and has no delegate
            try:
                one.pair.session[method](*one.pair.inputs(method, 0, *_SIZE))
            except ExecutionError:
                continue
            except Exception as error:
                raise Wrong(Verdict.RUN_ERROR, f"a call of a closed method raises {words(error)}") from error
            raise Wrong(Verdict.VIOLATION, f"{one.lowered.kind.name}.{method} was closed, and answers")

    def _new(self, what: str) -> str:
        self._count += 1
        return f"{what}_{self._count}"

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        one: Living,
        method: str,
        seed: int,
        size: int,
        changed: int,
        kept: bool = False,
        profiled: bool = False,
    ) -> None:
        """Call one method and judge the answer."""
        one.last[method] = seed, size
        flags = f"{', kept=True' * kept}{', profiled=True' * profiled}"
        self.script.append(f'check({one.name}.call("{method}", {seed}, {size}, {changed}{flags}))')
        if self.dry:
            return
        try:
            answer = one.pair.call(method, seed, size, changed, kept, profiled)
        except AssertionError as error:
            raise Wrong(Verdict.MISMATCH, f"{one.lowered.kind.name}.{method}: {error}") from error
        except Exception as error:
            raise Wrong(Verdict.RUN_ERROR, f"{one.lowered.kind.name}.{method}: {words(error)}") from error
        self.judge(one, method, answer)

    def judge(self, one: Living, method: str, answer: Answer) -> None:
        """Raise Wrong for an answer that is not eager's."""
        results, exact, native = map(flatten, answer)
        accuracy = one.lowered.accuracy[method]
        compared = compare(results, exact, native, self.library.precision, accuracy)
        if not compared.agrees:
            what = f"{one.lowered.kind.name}.{method} of {one.name}: {compared.difference}"
            raise Wrong(Verdict.MISMATCH, what, compared)
        self.worst = self.worst.worse(compared)

    def together(self, seed: int, times: int, others: bool) -> None:
        """Call all living sessions at the same time, from a thread each; `others` are opened and closed meanwhile."""
        calls = []
        for number, one in enumerate(self.living):
            method = one.methods[(seed + number) % len(one.methods)]
            one.last[method] = seed + number, _SIZE[0]
            calls.append((one, method, seed + number))
        if not calls:
            return
        listed = "".join(f'({one.name}, "{method}", {own}, {_SIZE[0]}), ' for one, method, own in calls)
        roots = list(dict.fromkeys(one.root for one in self.living)) if others else []
        more = f", [{', '.join(roots)}]" if others else ""
        self.script += [f"for answer in together([{listed[:-2]}], {times}{more}):", "    check(answer)"]
        if self.dry:
            return
        programs = list({id(one.loaded): one.loaded for one in self.living}.values()) if others else []
        try:
            given = [(one.pair, method, own, _SIZE[0]) for one, method, own in calls]
            answers = together(given, times, programs)
        except Exception as error:
            raise Wrong(Verdict.RUN_ERROR, f"in threads: {words(error)}") from error
        known: dict[tuple[int, int], Any] = {}
        for number, answer in enumerate(answers):
            one, method, _ = calls[number // times]
            # The same bits as in a call before need not be judged again.
            before = known.get((number // times, id(answer[1])))
            if before is None or not all(map(torch.equal, flatten(answer[0]), before)):
                self.judge(one, method, answer)
                known[number // times, id(answer[1])] = flatten(answer[0])

    def reset(self, one: Living, method: str) -> None:
        """Reset the buffers of one method, or of all, to their first values."""
        self.script.append(f'{one.name}.reset("{method}")' if method else f"{one.name}.reset()")
        if self.dry:
            return
        try:
            one.pair.reset(method)
        except DelegateKitError as error:
            raise Wrong(Verdict.RUN_ERROR, f"reset of {one.lowered.kind.name} fails: {words(error)}") from error

    def probe(self, changed: int) -> None:
        """Call each method of each living session with its last inputs, except the element in the middle."""
        for one in list(self.living):
            for method in one.methods:
                self.call(one, method, *one.last.get(method, (0, _SIZE[0])), changed, kept=True)


#: The size with which programs are exported.
_SIZE = (4, 0)


def temporary() -> AbstractContextManager[str]:
    """A folder for files, which is removed."""
    return tempfile.TemporaryDirectory(prefix="delegatekit-sessions-")
