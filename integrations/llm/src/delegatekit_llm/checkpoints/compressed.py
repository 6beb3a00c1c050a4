"""compressed-tensors in the format "pack-quantized", as LLM Compressor writes it: words along the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import torch

from delegatekit_api import UnsupportedError

from .layers import FLOATS, PackedLinear, Stored, unpacked

_FORMAT: Final = "pack-quantized"


class CompressedLinear(PackedLinear):
    """A layer with weight_packed (outputs, inputs * bits / 32), weight_scale (outputs, groups), and perhaps more.

    That is weight_zero_point, packed along the outputs, weight_g_idx, and weight_shape, which is not needed.
    """

    KEY: ClassVar[str] = "weight_packed"
    NAME: ClassVar[str] = "compressed-tensors"
    weight_packed: torch.Tensor
    weight_scale: torch.Tensor

    @classmethod
    def check(cls, settings: Mapping[str, Any], where: str) -> None:
        """Raise UnsupportedError for other formats, and for weights that are no integers of 4 or 8 bits."""
        for name, group in cls._config_groups(settings).items():
            weights = group.get("weights") or {}
            layout = group.get("format") or settings.get("format")
            kind = f"{weights.get('type', 'int')} of {weights.get('num_bits')} bits"
            if layout != _FORMAT or kind not in ("int of 4 bits", "int of 8 bits"):
                raise UnsupportedError(
                    f"its weights ({name}) are {kind} in the format {layout!r} of compressed-tensors",
                    where=where,
                    hint=f"taken: int of 4 or 8 bits in the format {_FORMAT}",
                )

    @classmethod
    def rounds_inputs(cls, settings: Mapping[str, Any]) -> bool:
        """True if the inputs of the layers are rounded to 8 bits in each call, with a scale for each token."""
        inputs = [group.get("input_activations") for group in cls._config_groups(settings).values()]
        return bool(inputs) and all(
            isinstance(given, Mapping)
            and (given.get("type", "int"), given.get("num_bits"), given.get("strategy")) == ("int", 8, "token")
            and given.get("dynamic")
            for given in inputs
        )

    @staticmethod
    def _config_groups(settings: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        found = settings.get("config_groups")
        return {str(name): group for name, group in (found or {}).items() if isinstance(group, Mapping)}

    def _described(self, key: Stored) -> None:
        self.bits = self._bits_of(key.shape[-1] if key.shape else 0, self.inputs)
        scale = self._stored.get("weight_scale")
        # One scale for all is one for each row.
        self._whole = scale is not None and scale.shape in ((), (1,))
        if self._whole:
            self.group = self.inputs
        groups = 1 if self._whole else self._groups("weight_scale", 1)
        self._claim("weight_packed", ("I32",), (self.outputs, -(-self.inputs * self.bits // 32)))
        self._claim("weight_scale", FLOATS, scale.shape if scale and self._whole else (self.outputs, groups))
        if "weight_zero_point" in self._stored:
            # Older versions do not pack them.
            packed = self._stored["weight_zero_point"].dtype != "I8"
            rows = -(-self.outputs * self.bits // 32) if packed else self.outputs
            self._claim("weight_zero_point", ("I32" if packed else "I8",), (rows, groups))
        if "weight_g_idx" in self._stored:
            self._claim("weight_g_idx", ("I32", "I64"), (self.inputs,))

    def read_values(self) -> torch.Tensor:
        """The integers."""
        return unpacked(self.weight_packed, self.bits, 1)[:, : self.inputs]

    def read_scales(self) -> torch.Tensor:
        """The scales."""
        return self.weight_scale.reshape(1, 1).expand(self.outputs, 1) if self._whole else self.weight_scale

    def read_zeros(self) -> torch.Tensor | None:
        """The zero points."""
        found = self._buffers.get("weight_zero_point")
        if found is None or found.dtype is torch.int8:
            return found
        return unpacked(found, self.bits, 0)[: self.outputs]

    def read_groups(self) -> torch.Tensor | None:
        """The group of each input; a layer that was not put in order has -1 everywhere."""
        found = self._buffers.get("weight_g_idx")
        return None if found is None or bool((found == -1).all()) else found.long()
