"""Asks the library whether it takes operations, in a process that lives as long as there are questions."""

from __future__ import annotations

import json
import os
import threading
import weakref
from functools import lru_cache
from typing import Any, Final

from delegatekit_toolkit.processes import Answering, EndedError, search_path

from ..blob.installation import Installation, Missing, find_installation
from ..ir.graph import Graph
from .requests import describe, request
from .starting import WHERE, command, first_complaint, own_words

#: Processes that are kept at the same time, each for one set of options.
_KEPT: Final = 2
#: Seconds that an answer may take.
_SECONDS: Final = 60.0


class Validator:
    """Asks about graphs for one set of options; equal ones share a process. May be called from several threads.

    The process ends with the last of those that share it; answers are remembered.
    """

    def __init__(self, options: bytes) -> None:
        self._options: Final = options
        self._asked: _Conversation | None = None

    def reason(self, graph: Graph) -> str | None:
        """Why the library does not take an operation of the graph; None if it takes all, or cannot be asked."""
        found = find_installation()
        if isinstance(found, Missing):
            return None
        if self._asked is None:
            self._asked = _conversation(found, self._options)
            self._asked.begin(self)
        return self._asked.reason(graph)


class _Conversation:
    """Questions and answers: a process that starts with the first question, and anew, once, if it dies of one."""

    def __init__(self, found: Installation, options: bytes) -> None:
        self._found: Final = found
        self._options: Final = options
        self._known: dict[str, str | None] = {}
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: Answering | None = None
        self._broken = ""
        self._users = 0

    def begin(self, user: Validator) -> None:
        """Somebody has questions, as long as it lives."""
        self._users += 1
        weakref.finalize(user, self._leave)

    def _leave(self) -> None:
        # (No lock: whoever asks refers to a user, and this may be called by the garbage collector at any place.)
        self._users -= 1
        if self._users <= 0:
            self._process = None

    def reason(self, graph: Graph) -> str | None:
        question = json.dumps(request(self._options, graph=_nameless(describe(graph))))
        if self._owner != os.getpid():
            # This is a fork: the pipe is its parent's, and so is the lock, which another thread may have held.
            self._owner, self._lock, self._process = os.getpid(), threading.Lock(), None
        with self._lock:
            if question not in self._known:
                self._known[question] = self._asked(question)
            return self._known[question]

    def _asked(self, question: str) -> str | None:
        if self._broken:
            return self._broken
        how = ""
        for _ in range(2):
            if self._process is None:
                validate = command(self._found, "validate")
                self._process = Answering(validate, seconds=_SECONDS, environment=search_path())
            try:
                answer = json.loads(self._process.ask(question.encode()))
            except EndedError as error:
                how, self._process = str(error), None
                continue
            if "broken" in answer:
                self._broken = f"{WHERE} does not work here: {answer['broken']}"
                return self._broken
            return None if answer["taken"] else f"Qualcomm's library refuses it: {_complaint(answer['said'])}"
        return f"{WHERE} {how} when it was asked about it"


@lru_cache(_KEPT)
def _conversation(found: Installation, options: bytes) -> _Conversation:
    return _Conversation(found, options)


def _nameless(graph: dict[str, Any]) -> dict[str, Any]:
    """The same question for equal operations: their tensors' names do not matter."""
    return graph | {"tensors": [item | {"name": f"t{index}"} for index, item in enumerate(graph["tensors"])]}


def _complaint(said: str) -> str:
    return own_words(said) or first_complaint(said)
