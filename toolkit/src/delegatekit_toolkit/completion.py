"""Completion of backends' options in a shell: NAME.KEY=VALUE, or KEY=VALUE where there is one backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final

from delegatekit_api import BackendOptions, DelegateKitError

__all__ = ["completions", "shown_settings", "unbreak", "unbroken"]

#: What a shell leaves out of the word to complete, in the environment.
_START: Final = "_DELEGATEKIT_WORD_START"


def shown_settings(
    given: Mapping[str, Any], incomplete: str, find: Callable[[str], type[BackendOptions]]
) -> list[tuple[str, str]]:
    """The completions of a setting for the backends that the command line names so far, without what a shell left out.

    `given` has the values of its parameters, "backends" or "backend" among them. Backends that `find` does not find,
    for which it raises DelegateKitError, have no options.
    """
    named = given.get("backends") or given.get("backend") or ()
    names = [name for text in ([named] if isinstance(named, str) else named) for name in text.split(",")]
    before = os.environ.get(_START, "")
    options = {}
    for name in names or [incomplete.partition(".")[0]]:
        with suppress(DelegateKitError):
            options[name] = find(name)
    return [(text.removeprefix(before), told) for text, told in completions(options, before + incomplete)]


def completions(options: Mapping[str, type[BackendOptions]], text: str) -> Iterator[tuple[str, str]]:
    """The settings that begin with `text`, and what each is for: keys that end with "=", or values after one.

    Values are known of options with choices and of those that are true or false.

    >>> from dataclasses import dataclass
    >>> from delegatekit_api import option
    >>> @dataclass(frozen=True)
    ... class MyOptions(BackendOptions):
    ...     fast: bool = option(False, help="Be fast.")
    ...
    >>> list(completions({"mine": MyOptions}, "f")), list(completions({"mine": MyOptions}, "mine.fast=t"))
    ([('fast=', 'Be fast.')], [('mine.fast=true', 'Be fast.')])
    """
    for backend, kind in options.items():
        for info in kind.describe():
            keys = [f"{backend}.{info.name}"]
            if len(options) == 1 and not text.startswith(f"{backend}."):
                keys = [info.name]
            for key in keys:
                texts = [f"{key}={value}" for value in _values(info)] if text.startswith(f"{key}=") else [f"{key}="]
                yield from ((item, info.help) for item in texts if item.startswith(text))


def _values(info: Any) -> Sequence[str]:
    if info.choices is not None:
        return [str(choice) for choice in info.choices]
    return ("false", "true") if isinstance(info.default, bool) else ()


def unbreak(environment: MutableMapping[str, str]) -> None:
    """Put the words that bash takes apart at "=" together again, before its completion reads them there."""
    if environment.get("_DELEGATEKIT_COMPLETE") == "complete_bash":
        words, place, start = unbroken(environment["COMP_WORDS"].split(), int(environment["COMP_CWORD"]))
        environment.update({"COMP_WORDS": " ".join(words), "COMP_CWORD": str(place), _START: start})


def unbroken(words: Sequence[str], current: int) -> tuple[list[str], int, str]:
    """The words of a command line as they were before a shell took them apart at "=".

    Returns them, the index of the one to complete, and the part of it that is before what the shell completes, which is
    left out.

    >>> unbroken(["lower", "--option", "fast", "=", "true", "--option", "size", "=", "l"], 8)
    (['lower', '--option', 'fast=true', '--option', 'l'], 4, 'size=')
    """
    found: list[str] = []
    place, before = len(words), ""
    for index, word in enumerate(words):
        is_apart = bool(index) and "=" in (word, words[index - 1])
        if is_apart:
            found[-1] += word
        else:
            found.append(word)
        if index == current:
            place = len(found) - 1
            before = found[-1].rpartition("=")[0] + "=" if is_apart else ""
    if before:
        found[place] = found[place].removeprefix(before)
    return found, min(place, len(found)), before
