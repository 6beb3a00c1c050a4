"""The formats of packed weights by the names that config.json has for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegatekit_api import UnsupportedError

from .awq import AwqLinear
from .compressed import CompressedLinear
from .gptq import GptqLinear
from .layers import PackedLinear

#: `quant_method` of a quantization_config -> its layers.
FORMATS: Final[dict[str, type[PackedLinear]]] = {
    "awq": AwqLinear,
    "compressed-tensors": CompressedLinear,
    "gptq": GptqLinear,
}
#: The method that transformers loads by itself.
TORCHAO: Final = "torchao"


@dataclass(frozen=True)
class Packing:
    """A folder's format, and its `quantization_config`."""

    kind: type[PackedLinear]
    settings: Mapping[str, Any]

    @property
    def rounds_inputs(self) -> bool:
        """True if the model rounds the inputs of its layers to 8 bits in each call."""
        return self.kind.rounds_inputs(self.settings)


def packing_of(config: Any, where: str) -> Packing | None:
    """The format of a folder's weights; None if transformers reads them by itself: float numbers, and torchao's.

    Raises UnsupportedError for another format.
    """
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return None
    if not isinstance(settings, Mapping):
        settings = settings.to_dict()
    method = settings.get("quant_method")
    if method == TORCHAO:
        return None
    kind = FORMATS.get(str(method))
    if kind is None:
        raise UnsupportedError(
            f"its weights are quantized by {method!r}",
            where=where,
            hint=f"taken: {', '.join(sorted({*FORMATS, TORCHAO}))}, and float weights, which --scheme quantizes",
        )
    kind.check(settings, where)
    return Packing(kind, settings)
