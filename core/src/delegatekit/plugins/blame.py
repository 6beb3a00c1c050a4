"""The one place that assigns blame: exceptions of a plugin become DelegateKit errors that name the plugin.

A plugin may raise anything, even objects that are no Exception, or that cannot be shown.
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
    """A plugin, or its installation, has a fault that does not affect the rest."""


def warn(text: str) -> None:
    """Report a fault of a plugin that does not affect the rest, in one line."""
    warnings.warn(" ".join(text.split()), PluginWarning, stacklevel=2)


@contextmanager
def blaming(
    make_error: Callable[[str], DelegateKitError], *, passing: tuple[type[Exception], ...] = (DelegateKitError,)
) -> Iterator[None]:
    """Convert any exception of a plugin, except Ctrl-C, to the error that `make_error` makes of its type and text.

    Errors of the types `passing` pass through: by default DelegateKit's own, which already describe the fault.
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
    """Type and text of a plugin's exception."""
    if isinstance(error, SystemExit):
        return f"SystemExit: {shown(error.code)} (the plugin called exit)"
    name, text = _guarded(lambda: type(error).__name__), _guarded(lambda: str(error))
    return f"{name}: {text}"[:_LONGEST_TEXT] if text else name


def shown(value: Any) -> str:
    """A plugin's answer as text for messages: the repr, truncated; the type of an object without repr."""
    try:
        return _printable(repr(value))[:_LONGEST_VALUE]
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"<{_guarded(lambda: type(value).__name__)} without a repr>"


def _is_readable(error: BaseException) -> bool:
    """True if a DelegateKit error can be shown: a plugin may have subclassed it."""
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
    """A text that any UTF-8 stream accepts: a plugin's may have unpaired surrogates."""
    return text.encode(errors="backslashreplace").decode()
