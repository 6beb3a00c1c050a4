"""The room of language models: its rule about two methods passes a good backend, and finds methods that keep apart."""

from __future__ import annotations

from typing import Any

import pytest

import delegatekit
from delegatekit_conformance.cases import language_models
from delegatekit_conformance.cases.base import Broken
from delegatekit_conformance.context import Context


def _run() -> str:
    return language_models._prefill_and_decode(Context("reference"))


def test_two_methods_over_the_same_caches_pass() -> None:
    assert _run() == "two texts of 24 tokens"


def test_methods_that_keep_their_caches_apart_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    load: Any = delegatekit.load
    monkeypatch.setattr(delegatekit, "load", lambda file: {name: load(file)[name] for name in ("prefill", "decode")})
    with pytest.raises(Broken, match="text 0: decode with 8 tokens before it"):
        _run()
