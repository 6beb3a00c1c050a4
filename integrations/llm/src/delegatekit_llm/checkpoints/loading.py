"""Folders with packed weights as models: transformers loads what is packed into layers that keep it so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import torch
from transformers.quantizers.auto import register_quantization_config, register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from delegatekit_api import FormatError

from .formats import Packing
from .layers import IntegerLinear, PackedLinear, Stored

#: The method's name in transformers' tables.
_METHOD: Final = "delegatekit"


@dataclass(frozen=True)
class _Plan:
    packing: Packing
    stored: Mapping[str, Stored]
    where: str


_plan: ContextVar[_Plan] = ContextVar("plan")


@contextmanager
def packed_as(config: Any, packing: Packing, stored: Mapping[str, Stored], where: str) -> Iterator[None]:
    """A block in which transformers loads the folder of a configuration with packed layers as they are stored.

    `stored` are the headers of all tensors of the folder. Loading raises FormatError for those that do not go
    together.
    """
    before = config.quantization_config
    token = _plan.set(_Plan(packing, stored, where))
    config.quantization_config = {"quant_method": _METHOD}
    try:
        yield
    finally:
        _plan.reset(token)
        config.quantization_config = before


def unpack(model: torch.nn.Module, packing: Packing, dtype: torch.dtype, *, mapped: bool) -> None:
    """Let the packed layers of a loaded model compute; what is `mapped` is unpacked at each use only."""
    for path, layer in list(model.named_modules()):
        if isinstance(layer, PackedLinear):
            if layer.bias is not None:
                layer.bias.data = layer.bias.data.to(dtype)
            model.set_submodule(path, IntegerLinear(layer, dtype, mapped=mapped, dynamic=packing.rounds_inputs))


@register_quantization_config(_METHOD)
class _Config(QuantizationConfigMixin):
    """Says that the method is ours."""

    def __init__(self, quant_method: str = _METHOD, **_: Any) -> None:
        self.quant_method: Any = quant_method


@register_quantizer(_METHOD)
class _Loader(HfQuantizer):
    """Puts packed layers in the place of linear ones before transformers loads the weights."""

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> Any:
        plan = _plan.get()
        kind = plan.packing.kind
        layers: dict[str, dict[str, Stored]] = {}
        for name in plan.stored:
            if name.endswith(f".{kind.KEY}"):
                layers[name.removesuffix(f".{kind.KEY}")] = {}
        for name, found in plan.stored.items():
            path, leaf = name.rpartition(".")[::2]
            if path in layers:
                layers[path][leaf] = found
        if not layers:
            raise FormatError(
                f"has no {kind.KEY}, which {kind.NAME} has for each layer",
                where=plan.where,
                hint="config.json has a quantization_config that is not that of the weights",
            )
        for place, tensors in layers.items():
            own, linear = _linear_at(model, place, plan.where)
            model.set_submodule(own, kind(tensors, linear, f"{plan.where}, {place}", plan.packing.settings))
        return model

    def _process_model_after_weight_loading(self, model: Any, **_: Any) -> Any:
        own: Any = self
        own.remove_quantization_config(model)
        return model

    @property
    def is_trainable(self) -> bool:
        """It is not."""
        return False

    def is_serializable(self) -> bool:
        """It is not."""
        return False


def _linear_at(model: Any, path: str, where: str) -> tuple[str, torch.nn.Linear]:
    """The layer of a path, which a file may have without the model's prefix."""
    for found in (path, f"{model.base_model_prefix}.{path}"):
        try:
            layer = model.get_submodule(found)
        except AttributeError:
            continue
        if isinstance(layer, torch.nn.Linear):
            return found, layer
    raise FormatError(
        f"has packed weights of {path}, which is not a linear layer of {type(model).__name__}",
        where=where,
        hint="config.json and the weights are of different models",
    )
