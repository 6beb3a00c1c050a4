"""GPTQ, as AutoGPTQ and GPTQModel write it: words along the inputs, zero points that are one less, act order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from delegatekit_api import UnsupportedError

from .layers import FLOATS, PackedLinear, Stored, unpacked


class GptqLinear(PackedLinear):
    """A layer with qweight (inputs * bits / 32, outputs), qzeros, scales (groups, outputs), and perhaps g_idx."""

    KEY: ClassVar[str] = "qweight"
    NAME: ClassVar[str] = "GPTQ"
    qweight: torch.Tensor
    qzeros: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def check(cls, settings: Mapping[str, Any], where: str) -> None:
        """Raise UnsupportedError for a layout of another kind."""
        layout = settings.get("checkpoint_format") or "gptq"
        if layout not in ("gptq", "gptq_v2"):
            raise UnsupportedError(
                f"its weights are packed in the layout {layout!r} of GPTQ", where=where, hint="taken: gptq and gptq_v2"
            )

    def _described(self, key: Stored) -> None:
        self.bits = self._bits_of(key.shape[0] if key.shape else 0, self.inputs)
        groups = self._groups("scales", 0)
        self._claim("qweight", ("I32",), (self.inputs * self.bits // 32, self.outputs))
        self._claim("qzeros", ("I32",), (groups, self.outputs * self.bits // 32))
        self._claim("scales", FLOATS, (groups, self.outputs))
        if "g_idx" in self._stored:
            self._claim("g_idx", ("I32", "I64"), (self.inputs,))

    def read_values(self) -> torch.Tensor:
        """The integers."""
        return unpacked(self.qweight, self.bits, 0).t()

    def read_scales(self) -> torch.Tensor:
        """The scales."""
        return self.scales.t()

    def read_zeros(self) -> torch.Tensor | None:
        """The zero points, to which the first version of the format adds one when it reads them."""
        less = 0 if self._settings.get("checkpoint_format") == "gptq_v2" else 1
        return unpacked(self.qzeros, self.bits, 1, add=less).t()

    def read_groups(self) -> torch.Tensor | None:
        """The group of each input."""
        found = self._buffers.get("g_idx")
        return None if found is None else found.long()
