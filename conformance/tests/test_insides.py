"""What is inside a compiled delegate."""

from __future__ import annotations

import pytest
import torch

from delegatekit_conformance.insides import bits, bytes_of


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.arange(6.0)[3:4].as_strided((1,), (7,)),
        torch.tensor(2.5, requires_grad=True),
        torch.empty(0, 3),
    ],
)
def test_the_bytes_of_a_tensor_are_its_elements_in_order_whatever_its_strides(tensor: torch.Tensor) -> None:
    assert bits(tensor) == bytes_of(tensor) == tensor.detach().flatten().clone().numpy().tobytes()
