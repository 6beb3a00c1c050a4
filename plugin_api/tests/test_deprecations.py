"""The table of deprecations: what it names is there and warns, and what replaces it is the same thing."""

from __future__ import annotations

import datetime
import importlib
import warnings
from typing import Any

import pytest

import delegatekit_api
from delegatekit_api import ApiVersion, PluginError, _deprecations
from delegatekit_api.versions import API_VERSION, DEPRECATIONS, Deprecation, outlived

each_name = pytest.mark.parametrize("row", [row for row in DEPRECATIONS if not row.is_check], ids=lambda row: row.name)
each_row = pytest.mark.parametrize("row", DEPRECATIONS, ids=lambda row: row.name)


def resolved(name: str) -> Any:
    """What a full name names: a module, or something in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        home, _, last = name.rpartition(".")
        return getattr(importlib.import_module(home), last)


@each_name
def test_what_is_deprecated_works_and_warns_with_the_fix(row: Deprecation) -> None:
    new = resolved(row.instead)
    module = type(new).__name__ == "module"
    own = [name for name, value in vars(new).items() if getattr(value, "__module__", "") == row.instead]
    for name in getattr(new, "__all__", own) if module else [""]:
        with pytest.warns(DeprecationWarning, match=f"goes in plugin API {row.goes}: use {row.instead}") as caught:
            old = getattr(resolved(row.name), name) if module else resolved(row.name)
        assert old is (getattr(new, name) if module else new)
        assert caught[0].filename == __file__  # the user's line, not ours


@each_row
def test_a_row_is_dated_and_goes_with_a_major_that_is_to_come(row: Deprecation) -> None:
    assert row.since <= API_VERSION
    assert row.goes > API_VERSION, "remove it, and its row"
    assert row.goes.minor == 0, "what plugins use goes with a major version"
    datetime.date.fromisoformat(row.date)


def test_a_name_that_never_was_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"module 'delegatekit_api.quantization' has no attribute '__path__'"):
        getattr(importlib.import_module("delegatekit_api.quantization"), "__path__")  # noqa: B009
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        from delegatekit_toolkit.sizes import nothing  # noqa: F401


def test_importing_the_package_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(delegatekit_api)
        importlib.import_module("delegatekit_api.quantization")


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a check in the table, which becomes stricter in API 3.0."""
    row = Deprecation("an empty summary", ApiVersion(2, 4), "2026-11-29", ApiVersion(3, 0), "one line for listings")
    monkeypatch.setattr(_deprecations, "DEPRECATIONS", (row,))
    return row.name


def test_a_check_that_becomes_stricter_warns_first(check: str) -> None:
    with pytest.warns(DeprecationWarning) as caught:
        outlived(check, where="backend acme")
    text = "backend acme: an empty summary goes in plugin API 3.0: use one line for listings"
    assert str(caught[0].message) == text


def test_and_refuses_from_its_version_on(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_deprecations, "API_VERSION", ApiVersion(3, 0))
    with pytest.raises(PluginError, match="backend acme: an empty summary is no longer accepted"):
        outlived(check, where="backend acme")


def test_a_check_without_a_row_may_not_become_stricter() -> None:
    with pytest.raises(KeyError):
        outlived("what nobody announced", where="backend acme")
