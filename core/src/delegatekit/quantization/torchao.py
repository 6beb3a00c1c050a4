"""torchao, which is an extra: loaded on first use, with one clear error if it is missing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from delegatekit_api import QuantizationError

if TYPE_CHECKING:
    from torch.fx import GraphModule


def load(name: str) -> ModuleType:
    """A module of torchao by name ("quantization.pt2e.quantize_pt2e"). Raises QuantizationError if it is missing."""
    try:
        with quiet():
            return import_module(f"torchao.{name}")
    except ImportError as error:
        raise QuantizationError(
            f"quantization needs torchao 0.18: {error}", hint="pip install 'torchao>=0.18,<0.19'"
        ) from error


def fold_batch_norms(module: GraphModule) -> None:
    """Fold batch norms in eval mode into the convolutions and linear layers before them, as torchao's flows do."""
    utils = load("quantization.pt2e.utils")
    utils._fuse_conv_bn_(module)
    utils._fuse_linear_bn_(module)


def convert(prepared: GraphModule, *, trained: bool) -> GraphModule:
    """Convert a module that torchao prepared and that was calibrated or `trained`; constants stay in float."""
    pt2e = load("quantization.pt2e.quantize_pt2e")
    # With a batch norm, torchao searches for patterns that occur in training only: for many seconds.
    operator = import_module("torch").ops.aten.batch_norm.default
    if not trained:
        _replace(prepared, operator, _batch_norm)
    converted: GraphModule = pt2e.convert_pt2e(prepared, fold_quantize=False)
    _replace(converted, _batch_norm, operator)
    return converted


def _replace(module: GraphModule, old: Any, new: Any) -> None:
    found = [node for node in module.graph.nodes if node.target is old]
    for node in found:
        node.target = new
    if found:
        module.recompile()


def _batch_norm(*arguments: Any) -> Any:
    """A placeholder of the operator; it is never called."""
    raise NotImplementedError


@contextmanager
def quiet() -> Iterator[None]:
    """Silence torchao's messages on the root logger about GPU extensions that it cannot load."""
    root = logging.getLogger()
    level, pytree = root.level, logging.getLogger("torch.utils._pytree")
    pytree_level = pytree.level
    root.setLevel(logging.ERROR)
    pytree.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
        pytree.setLevel(pytree_level)
