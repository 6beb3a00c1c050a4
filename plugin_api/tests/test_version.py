"""The rule for which plugins a core can load."""

from __future__ import annotations

import pytest

from delegatekit_api import ApiVersion
from delegatekit_api.versions import API_VERSION, incompatibility

CORE = ApiVersion(2, 3)


@pytest.mark.parametrize("minor", [0, 2, 3])
def test_a_plugin_of_the_same_major_and_no_newer_minor_fits(minor: int) -> None:
    assert incompatibility(ApiVersion(2, minor), CORE) is None


@pytest.mark.parametrize("plugin", [ApiVersion(2, 4), ApiVersion(3, 0), ApiVersion(3, 9)])
def test_a_newer_plugin_asks_for_a_newer_core(plugin: ApiVersion) -> None:
    reason = incompatibility(plugin, CORE) or ""
    assert f"speaks API {plugin}, too new for this core (API 2.3): upgrade delegatekit" in reason


@pytest.mark.parametrize("plugin", [ApiVersion(1, 0), ApiVersion(1, 9), ApiVersion(0, 3)])
def test_a_plugin_of_an_older_major_asks_for_a_newer_plugin(plugin: ApiVersion) -> None:
    reason = incompatibility(plugin, CORE) or ""
    assert f"speaks API {plugin}, too old for this core (API 2.3): install a newer release" in reason


def test_this_release_fits_itself() -> None:
    assert incompatibility(API_VERSION) is None


def test_versions_are_ordered_by_number() -> None:
    assert ApiVersion(1, 9) < ApiVersion(1, 10) < ApiVersion(2, 0)


def test_a_version_reads_back_from_its_text() -> None:
    assert ApiVersion.parse(" 12.34\n") == ApiVersion(12, 34)
    assert str(ApiVersion(12, 34)) == "12.34"


@pytest.mark.parametrize("text", ["", "1", "1.", "1.2.3", "v1.2", "1.x", "-1.2", "1.-2", "1 .2", "99999.0"])
def test_another_text_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match=r"not of the form MAJOR\.MINOR"):
        ApiVersion.parse(text)
