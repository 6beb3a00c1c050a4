"""The check for stock ExecuTorch and its delegates; plugins' tests run delegates in it."""

from __future__ import annotations

import pytest

from delegatekit_toolkit import stock
from delegatekit_toolkit.stock import stock_has


def test_a_delegate_that_the_library_does_not_have() -> None:
    pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")
    assert stock_has("XnnpackBackend", "").available
    found = stock_has("NoSuchBackend", "pip install it")
    assert (found.available, found.reason) == (False, "the installed executorch was built without NoSuchBackend")


def test_a_library_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("libtorch.so: undefined symbol")

    monkeypatch.setattr(stock, "_binding", broken)
    found = stock_has("XnnpackBackend", "pip install it")
    assert not found.available
    assert found.reason == "executorch cannot be imported (libtorch.so: undefined symbol): pip install it"
