"""Rotary embeddings whose frequencies depend on the length of the text, as functions of the tokens' positions.

transformers changes a buffer of the module from call to call, by a decision that cannot be exported. Here the
frequencies are computed from the positions in each call, by transformers' own formula; the rest of the module is the
model's code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from delegatekit_api import UnsupportedError


class _Replaced:
    """A module, with other values for some of its attributes."""

    def __init__(self, module: torch.nn.Module, **values: Any) -> None:
        self._module = module
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def changing_rotaries(model: torch.nn.Module, context: int) -> list[torch.nn.Module]:
    """The model's rotary embeddings whose frequencies depend on the length.

    Raises UnsupportedError for frequencies that change within `context` tokens so that what is in a cache would have
    to be computed again.
    """
    found = []
    for name, module in model.named_modules():
        given = getattr(module, "rope_type", None)
        kinds = set(given.values() if isinstance(given, dict) else [given]) - {None}
        if "longrope" in kinds:
            _check_long(module, name, context)
        if any(kind == "longrope" or "dynamic" in kind for kind in kinds):
            found.append(module)
    return found


@contextmanager
def exportable(rotaries: Iterable[torch.nn.Module]) -> Iterator[None]:
    """These rotary embeddings can be exported meanwhile."""
    with ExitStack() as stack:
        for module in rotaries:
            stack.enter_context(_forward(module, _forward_of(module)))
        yield


@contextmanager
def _forward(module: torch.nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def _forward_of(module: torch.nn.Module) -> Callable[..., Any]:
    """The forward of a rotary embedding, which computes the frequencies for the positions that it is given."""
    forward = inspect.unwrap(type(module).forward)

    def computed(x: torch.Tensor, position_ids: torch.Tensor, layer_type: str | None = None) -> Any:
        owner: Any = module
        kind = owner.rope_type if layer_type is None else owner.rope_type[layer_type]
        prefix, more = ("", {}) if layer_type is None else (f"{layer_type}_", {"layer_type": layer_type})
        if "dynamic" not in kind:  # `_check_long` has made sure of the short factors
            return forward(owner, x, position_ids, **more)
        length = torch.max(position_ids) + 1
        frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](owner.config, x.device, seq_len=length, **more)
        values = {f"{prefix}inv_freq": frequencies, f"{prefix}attention_scaling": scaling}
        return forward(_Replaced(module, **values), x, position_ids, **more)

    return computed


def _check_long(module: torch.nn.Module, name: str, context: int) -> None:
    config: Any = module.config
    parameters = config.rope_parameters
    for found in (parameters, *(item for item in parameters.values() if isinstance(item, dict))):
        limit = found.get("original_max_position_embeddings")
        if found.get("rope_type") == "longrope" and limit is not None and context > limit:
            raise UnsupportedError(
                f"its rotary frequencies (longrope) change at {limit} tokens, and {context} are asked for: what is "
                "in the cache by then would have to be computed again",
                where=f"module {name}",
                hint=f"context={limit}, or less",
            )
