"""An error's message: what, where, and what to do; one family, so that callers can catch it as a whole."""

from __future__ import annotations

import pickle

import pytest

import delegatekit_api
from delegatekit_api import DelegateKitError, LoweringError, UnsupportedError

FAMILY = [
    getattr(delegatekit_api, name)
    for name in delegatekit_api.__all__
    if name.endswith("Error") and name != "DelegateKitError"
]


@pytest.mark.parametrize(
    ("where", "hint", "message"),
    [
        (None, None, "is wrong"),
        ("offset 4", None, "offset 4: is wrong"),
        (None, "do this", "is wrong\n  -> do this"),
        ("offset 4", "do this", "offset 4: is wrong\n  -> do this"),
    ],
)
def test_a_message_has_place_and_hint_as_far_as_they_are_known(
    where: str | None, hint: str | None, message: str
) -> None:
    error = DelegateKitError("is wrong", where=where, hint=hint)
    assert str(error) == message
    assert (error.what, error.where, error.hint) == ("is wrong", where, hint)


@pytest.mark.parametrize("error", FAMILY)
def test_all_errors_are_one_family(error: type[DelegateKitError]) -> None:
    assert issubclass(error, DelegateKitError)
    assert error("x").what == "x"


def test_an_unsupported_operator_is_a_lowering_error() -> None:
    assert issubclass(UnsupportedError, LoweringError)


@pytest.mark.parametrize("error", [DelegateKitError, *FAMILY])
def test_an_error_of_a_worker_process_arrives_whole(error: type[DelegateKitError]) -> None:
    sent = error("is wrong", where="node add", hint="do this")
    got = pickle.loads(pickle.dumps(sent))
    assert type(got) is error
    assert (str(got), got.what, got.where, got.hint) == (str(sent), "is wrong", "node add", "do this")
