"""The operators' kernels on the host, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from delegatekit_api import Availability, ExecutionError, FormatError

from ..ir.attention import attend
from ..ir.schemas import SDPA


class LlamaRuntime:
    """The kernels by name."""

    def is_available(self) -> Availability:
        """True: PyTorch computes them."""
        return Availability(True)

    def kernel(self, operator: str) -> Callable[..., None]:
        """The kernel of an operator. Raises FormatError for one that is not here."""
        if operator != SDPA:
            raise FormatError(f"there is no kernel for {operator} here", hint=f"there is one for {SDPA}")
        return _custom_sdpa


def _custom_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start: int,
    mask: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    out: torch.Tensor,
) -> None:
    if mask is not None or dropout or not causal or key.shape[0] != 1:
        raise FormatError("attention of one text, causal and without a mask, is computed here", where=SDPA)
    if not 0 <= start <= key.shape[1] - query.shape[1]:
        raise ExecutionError(
            f"{query.shape[1]} tokens from {start} on do not fit into a cache of {key.shape[1]}", where=SDPA
        )
    out.resize_(query.shape)
    out.copy_(attend(query, key[0], value[0], start, scale))
