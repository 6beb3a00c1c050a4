"""Keys of constants depend on their elements alone; loading verifies every byte."""

from __future__ import annotations

import hashlib

import pytest
import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.content import ConstantStore, content_key, load_constant, storage_key
from delegatekit_toolkit.dtypes import dtype_name, dtype_of, item_size

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@pytest.mark.parametrize("name", DTYPES)
def test_names_of_dtypes_lead_back(name: str) -> None:
    assert dtype_name(dtype_of(name)) == name
    assert item_size(name) == torch.empty(1, dtype=dtype_of(name)).element_size()


@pytest.mark.parametrize("name", ["", "nn", "load", "Tensor", "float", "__doc__"])
def test_names_from_a_file_are_safe(name: str) -> None:
    if name == "float":  # torch's alias of float32
        assert dtype_of(name) is torch.float32
        return
    with pytest.raises(FormatError, match=r"my blob: .* is not a dtype"):
        dtype_of(name, "my blob")


def test_a_key_is_the_hash_of_the_elements_in_row_major_order() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    assert content_key(x) == hashlib.sha256(x.numpy().tobytes()).hexdigest()
    assert content_key(x.T) == hashlib.sha256(x.T.contiguous().numpy().tobytes()).hexdigest()
    assert content_key(x[:, 1]) == content_key(x[:, 1].clone())
    assert content_key(torch.zeros(0)) == hashlib.sha256().hexdigest()
    assert content_key(torch.tensor(1.5)) == content_key(torch.tensor([1.5]).expand(1, 1))


def test_bfloat16_and_parameters_have_keys() -> None:
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    assert content_key(weight) == content_key(weight.view(torch.int16).detach())


def test_storage_keys_tell_views_apart() -> None:
    x = torch.zeros(4, 4)
    assert storage_key(x) == storage_key(x[:])
    different = [x, x.T, x[1:], x.reshape(16), x.view(torch.int32), x.clone()]
    assert len({storage_key(item) for item in different}) == len(different)


def test_equal_constants_are_stored_once_and_not_copied() -> None:
    store = ConstantStore("mine_", alignment=64)
    weight = torch.nn.Parameter(torch.arange(6.0))
    keys = [store.add(weight), store.add(weight.detach().clone().reshape(2, 3)), store.add(torch.ones(1))]
    assert keys[0] == keys[1] != keys[2]
    first, second = store.named_data
    assert (first.key, second.key) == (keys[0], keys[2])
    assert first.alignment == 64
    assert isinstance(first.data, torch.Tensor) and first.data.data_ptr() == weight.data_ptr()
    assert not first.data.requires_grad


def data_of(tensor: torch.Tensor, shift: int = 0) -> memoryview:
    """The tensor's bytes, `shift` bytes into a buffer."""
    return memoryview(bytes(shift) + tensor.contiguous().view(torch.uint8).numpy().tobytes())[shift:]


@pytest.mark.parametrize("shift", [0, 1])
def test_a_constant_is_read_back_wherever_it_lies(shift: int) -> None:
    x = torch.randn(3, 5)
    key = "mine_" + content_key(x)
    found = load_constant({key: data_of(x, shift)}, key, "float32", (3, 5), prefix="mine_")
    assert torch.equal(found, x)


def test_a_constant_without_elements_needs_no_data() -> None:
    assert load_constant({}, "", "int8", (0, 3)).shape == (0, 3)


def test_damage_is_noticed() -> None:
    x = torch.ones(4)
    key = content_key(x)
    with pytest.raises(FormatError, match=f"my blob: the file has no data '{key}'"):
        load_constant({}, key, "float32", (4,), where="my blob")
    with pytest.raises(FormatError, match="has 16 bytes instead of 20"):
        load_constant({key: data_of(x)}, key, "float32", (5,))
    with pytest.raises(FormatError, match="is damaged: the checksum is wrong"):
        load_constant({key: data_of(x + 1)}, key, "float32", (4,))
    with pytest.raises(FormatError, match="is not a dtype"):
        load_constant({key: data_of(x)}, key, "nn", (4,))
