"""Places in tables: the nearest numbers, and errors that add up to nothing."""

from __future__ import annotations

import importlib

import pytest
import torch

from delegatekit_toolkit import tables as module
from delegatekit_toolkit.tables import places

VALUES = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
TABLE = torch.linspace(-2, 2, 8)[None]


def test_the_nearest_number() -> None:
    found = places(VALUES, TABLE, balance=False)
    assert found.dtype is torch.int32
    distances = (VALUES[..., None] - TABLE[0]).abs()
    assert torch.equal(distances.gather(2, found[..., None].long())[..., 0], distances.amin(2))


def test_balanced_errors_of_a_row_add_up_to_less() -> None:
    nearest, found = (TABLE[0][places(VALUES, TABLE, balance=balance)] for balance in (False, True))
    before, after = ((numbers - VALUES).sum(1).abs() for numbers in (nearest, found))
    step = 4 / 7
    assert (after <= step / 2 + 1e-5).all() and after.sum() < before.sum()
    # No place moves by more than one.
    assert (found - nearest).abs().max() < step * 1.01


@pytest.mark.parametrize("balance", [False, True])
def test_each_row_has_its_own_table(balance: bool) -> None:
    own = TABLE * torch.arange(1, 7)[:, None]
    one_by_one = [places(row[None], table[None], balance=balance) for row, table in zip(VALUES, own, strict=True)]
    assert torch.equal(places(VALUES, own, balance=balance), torch.cat(one_by_one))


def test_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = places(VALUES, TABLE)
    monkeypatch.setattr(module, "_AT_ONCE", 110)
    assert torch.equal(places(VALUES, TABLE), wanted)


def test_half_precision_is_looked_up_as_float32() -> None:
    halves = VALUES.bfloat16()
    assert torch.equal(places(halves, TABLE), places(halves.float(), TABLE))


def test_torchaos_module_registers_the_operator() -> None:
    pytest.importorskip("torchao")
    importlib.import_module(module.operator_module())
    assert torch.ops.quant.dequantize_codebook.default


def test_a_torchao_without_the_operator_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="torchao has no codebook_ops"):
        module.operator_module()
