"""The plugin API keeps its word: nothing that a plugin relies on goes, or changes, within a major version."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from surface import FOLDER, Surface, forbidden, read, surface

from delegatekit_api import ApiVersion
from delegatekit_api.versions import API_VERSION, DEPRECATIONS

#: Old name -> where it is now: what is deprecated, and a hook that plugins implement as before.
MOVED = {row.name: row.instead for row in DEPRECATIONS if not row.is_check} | {
    # Observers are still asked for it, by the suite.
    "delegatekit_api.observers.ObserverSpec.conformance_cases": "delegatekit_api.observers.SuiteSpec.conformance_cases"
}
SPEC = "delegatekit_api.BackendSpec"


@pytest.mark.parametrize("minor", range(API_VERSION.minor + 1))
def test_this_version_offers_what_each_older_minor_offered(minor: int) -> None:
    old = read(str(ApiVersion(API_VERSION.major, minor)))
    assert forbidden(old, surface(), MOVED) == []


def test_an_addition_demands_a_minor_version() -> None:
    added = {name: what for name, what in surface().items() if name not in read(str(API_VERSION))}
    assert not added, (
        f"the plugin API has more than {API_VERSION}: raise the minor in _version.py, write the surface with "
        "`python plugin_api/tests/surface.py`, and freeze a plugin of the old minor in tests/frozen/build.py"
    )


def test_there_is_a_surface_for_each_minor_version() -> None:
    wanted = {f"{ApiVersion(API_VERSION.major, minor)}.txt" for minor in range(API_VERSION.minor + 1)}
    assert {path.name for path in FOLDER.iterdir()} == wanted


def renamed(old: Surface) -> Surface:
    name = f"{SPEC}.create_partitioner(options)"
    return {(f"{SPEC}.create_partitioner(settings)" if key == name else key): what for key, what in old.items()}


def removed(old: Surface) -> Surface:
    return {key: what for key, what in old.items() if not key.startswith(f"{SPEC}.passes")}


def changed(old: Surface) -> Surface:
    return old | {"delegatekit_api.BackendDescription.supports_dynamic_shapes": "field = True"}


def swapped(old: Surface) -> Surface:
    both = (f"{SPEC}.preprocess(partition)", f"{SPEC}.preprocess(options)")
    return old | dict(zip(both, map(old.__getitem__, reversed(both)), strict=True))


def wanting(old: Surface) -> Surface:
    return old | {"delegatekit_api.Verdict.severity": "field 2"}


def demanding(old: Surface) -> Surface:
    return old | {"delegatekit_api.DelegateRuntime.warm_up": "method"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (renamed, f"{SPEC}.create_partitioner(options) is gone: a minor version removes nothing"),
        (removed, f"{SPEC}.passes is gone: a minor version removes nothing"),
        (changed, "was 'field = False' and is 'field = True': a minor version changes nothing"),
        (swapped, "was 'argument 1' and is 'argument 2': a minor version changes nothing"),
        (wanting, "delegatekit_api.Verdict.severity is new and has no default"),
        (demanding, "delegatekit_api.DelegateRuntime.warm_up is new in a protocol that plugins implement"),
    ],
)
def test_what_the_rules_forbid_is_found(change: Callable[[Surface], Surface], words: str) -> None:
    old = read(str(API_VERSION))
    found = forbidden(old, change(old), MOVED)
    assert any(words in item for item in found), found


def test_what_the_rules_allow_is_not() -> None:
    old = read(str(API_VERSION))
    more = {
        f"{SPEC}.warm_up": "hook",
        f"{SPEC}.warm_up(options)": "argument 1",
        f"{SPEC}.preprocess(device)": "argument 3",
        "delegatekit_api.Verdict.severity": "field = 0",
    }
    assert forbidden(old, old | more, MOVED) == []


def test_a_hook_that_gets_another_argument_shows() -> None:
    hooks = {name for name, what in surface().items() if what == "hook"}
    assert {f"{SPEC}.preprocess", "delegatekit_api.observers.ObserverSpec.on_stage"} <= hooks
    assert surface()[f"{SPEC}.preprocess(partition)"] == "argument 1"
