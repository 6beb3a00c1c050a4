"""AWQ in the layout "gemm", as AutoAWQ writes it: words along the outputs, in an order of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import torch

from delegatekit_api import UnsupportedError

from .layers import FLOATS, PackedLinear, Stored, unpacked

_BITS: Final = 4
#: The place in a word of each of its eight outputs.
_PLACES: Final = (0, 4, 1, 5, 2, 6, 3, 7)


class AwqLinear(PackedLinear):
    """A layer with qweight (inputs, outputs / 8), qzeros (groups, outputs / 8) and scales (groups, outputs)."""

    KEY: ClassVar[str] = "qweight"
    NAME: ClassVar[str] = "AWQ"
    qweight: torch.Tensor
    scales: torch.Tensor

    @classmethod
    def check(cls, settings: Mapping[str, Any], where: str) -> None:
        """Raise UnsupportedError for other numbers of bits and layouts."""
        bits = settings.get("bits", settings.get("w_bit", _BITS))
        layout = str(settings.get("version") or settings.get("format") or "gemm").lower()
        if bits != _BITS or layout != "gemm":
            raise UnsupportedError(
                f"its weights are of {bits} bits in the layout {layout!r} of AWQ",
                where=where,
                hint="taken: 4 bits in the layout gemm",
            )

    def _described(self, key: Stored) -> None:
        self.bits = _BITS
        groups = self._groups("scales", 0)
        words = self.outputs * _BITS // 32
        self._claim("qweight", ("I32",), (self.inputs, words))
        if "qzeros" in self._stored or self._settings.get("zero_point", True):
            self._claim("qzeros", ("I32",), (groups, words))
        self._claim("scales", FLOATS, (groups, self.outputs))

    def read_values(self) -> torch.Tensor:
        """The integers."""
        return unpacked(self.qweight, _BITS, 1, order=_PLACES).t()

    def read_scales(self) -> torch.Tensor:
        """The scales."""
        return self.scales.t()

    def read_zeros(self) -> torch.Tensor | None:
        """The zero points."""
        found = self._buffers.get("qzeros")
        return None if found is None else unpacked(found, _BITS, 1, order=_PLACES).t()
