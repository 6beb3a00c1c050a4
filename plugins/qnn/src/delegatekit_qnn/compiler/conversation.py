"""The process for queries to Qualcomm's library: whether it works here at all, and about operations."""

from __future__ import annotations

import json
import os
import threading
import weakref
from functools import lru_cache
from typing import Any, Final

from delegatekit_api import Availability
from delegatekit_toolkit.processes import Answering, EndedError, search_path

from ..blob.installation import Installation, Missing, find_installation, unusable
from ..blob.spec import options_of
from ..blob.words import first_complaint, own_words
from ..options import QnnOptions
from .starting import WHERE, command, request

#: The maximum number of processes at the same time, each for one set of options.
_KEPT: Final = 2
#: Seconds to wait for an answer.
_SECONDS: Final = 60.0


class Conversation:
    """Questions and answers: a process that starts with the first question, and is restarted once if it dies on one."""

    def __init__(self, found: Installation, options: bytes) -> None:
        self._found: Final = found
        self._options: Final = options
        self._known: dict[str, str | None] = {}
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._process: Answering | None = None
        self._tried = False
        self._fault: Missing | None = None
        self._users = 0

    def begin(self, user: object) -> None:
        """Keep the process while this user lives."""
        self._users += 1
        weakref.finalize(user, self._leave)

    def _leave(self) -> None:
        # (No lock: every caller refers to a user, and the garbage collector may call this at any time.)
        self._users -= 1
        self.rest()

    def rest(self) -> None:
        """End the process if it has no users."""
        if self._users <= 0:
            self._process = None

    def fault(self) -> Missing | None:
        """The reason why the library does not work here with these options; None if it does. It is tried once."""
        with self._mine():
            return self._found_fault()

    def reason(self, graph: dict[str, Any]) -> str | None:
        """The reason why the library refuses an operation of a graph; None if it accepts all, or does not work here."""
        question = json.dumps(request(self._options, graph=graph))
        with self._mine():
            if self._found_fault() is not None:
                return None
            if question not in self._known:
                self._known[question] = self._asked(question)
            return self._known[question]

    def _mine(self) -> threading.Lock:
        """The lock. In a fork the pipe is its parent's, and so is the lock, which another thread may have held."""
        if self._owner != os.getpid():
            self._owner, self._lock, self._process = os.getpid(), threading.Lock(), None
        return self._lock

    def _found_fault(self) -> Missing | None:
        if not self._tried:
            self._fault = self._tried_fault()
            self._tried = True
        return self._fault

    def _tried_fault(self) -> Missing | None:
        answer = self._answered(json.dumps(request(self._options)))
        if isinstance(answer, str):
            return unusable(self._found, f"{answer} when it was started")
        if "broken" in answer:
            said = first_complaint(answer["said"])
            return unusable(self._found, answer["broken"] + (f" ({said})" if said else ""))
        return None

    def _asked(self, question: str) -> str | None:
        answer = self._answered(question)
        if isinstance(answer, str):
            return f"{WHERE} {answer} when it was asked about it"
        if "broken" in answer:
            return f"{WHERE} does not work any more: {answer['broken']}"
        said = own_words(answer["said"]) or first_complaint(answer["said"]) or "no reason given"
        return None if answer["taken"] else f"Qualcomm's library refuses it: {said}"

    def _answered(self, question: str) -> Any:
        """The answer, or the process's second ending in words."""
        how = ""
        for _ in range(2):
            try:
                if self._process is None:
                    validate = command(self._found, "validate")
                    self._process = Answering(validate, seconds=_SECONDS, environment=search_path())
                return json.loads(self._process.ask(question.encode()))
            except EndedError as error:
                how, self._process = str(error), None
        return how


@lru_cache(_KEPT)
def conversation(found: Installation, options: bytes) -> Conversation:
    """The conversation with a library with one set of options."""
    return Conversation(found, options)


def availability(options: QnnOptions) -> Availability:
    """Check in a separate process that the library exists and works, with a remedy if not.

    The process stays for the questions of a partitioner with the same options.
    """
    found = find_installation()
    if isinstance(found, Missing):
        return found.availability
    asked = conversation(found, options_of(options, floats=options.computes_floats))
    fault = asked.fault()
    if not options.validate:
        asked.rest()
    return Availability(True) if fault is None else fault.availability
