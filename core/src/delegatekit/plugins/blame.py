"""The one place that blames: what a plugin raises becomes an error of ours that names the plugin.

A plugin may raise anything: what is not an Exception, and what cannot even be shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from delegatekit_api import DelegateKitError

#: Characters of a plugin's text, and of a value, that are shown.
_LONGEST_TEXT: Final = 500
_LONGEST_VALUE: Final = 80


class PluginWarning(UserWarning):
    """A plugin, or what is installed of it, has a fault that the rest does without."""


def warn(text: str) -> None:
    """Report a fault of a plugin that the rest does without, in one line."""
    warnings.warn(" ".join(text.split()), PluginWarning, stacklevel=2)


@contextmanager
def blaming(
    make_error: Callable[[str], DelegateKitError], *, passing: tuple[type[Exception], ...] = (DelegateKitError,)
) -> Iterator[None]:
    """Turn whatever a plugin raises, except for Ctrl-C, into the error that `make_error` makes of its type and text.

    Errors of the types `passing` are handed on as they are: by default our own, which say already what was wrong.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if isinstance(error, passing) and _is_readable(error):
            raise
        raise make_error(fault(error)) from error


def fault(error: BaseException) -> str:
    """Type and text of what a plugin raised."""
    if isinstance(error, SystemExit):
        return f"SystemExit: {shown(error.code)} (the plugin called exit)"
    name, text = _guarded(lambda: type(error).__name__), _guarded(lambda: str(error))
    return f"{name}: {text}"[:_LONGEST_TEXT] if text else name


def shown(value: Any) -> str:
    """A plugin's answer as a message shows it: the repr, cut off; the type of what has no repr."""
    try:
        return _printable(repr(value))[:_LONGEST_VALUE]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"<{_guarded(lambda: type(value).__name__)} without a repr>"


def _is_readable(error: BaseException) -> bool:
    """Whether an error of ours can be shown: a plugin may have made its own class of it."""
    try:
        return isinstance(str(error), str)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False


def _guarded(read: Callable[[], str]) -> str:
    try:
        return _printable(read())
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<its text raises {type(error).__name__}>"


def _printable(text: str) -> str:
    """A text that any stream of UTF-8 takes: a plugin's may have half of a character."""
    return text.encode(errors="backslashreplace").decode()
