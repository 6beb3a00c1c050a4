"""The one place that blames: what a plugin raises becomes an error of ours that names the plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from delegatekit_api import DelegateKitError


@contextmanager
def blaming(
    make_error: Callable[[str], DelegateKitError], *, passing: tuple[type[Exception], ...] = (DelegateKitError,)
) -> Iterator[None]:
    """Turn an exception of a plugin into the error that `make_error` makes of its type and text.

    Errors of the types `passing` are handed on as they are: by default our own, which say already what was wrong.
    """
    try:
        yield
    except passing:
        raise
    except Exception as error:
        raise make_error(f"{type(error).__name__}: {error}") from error
