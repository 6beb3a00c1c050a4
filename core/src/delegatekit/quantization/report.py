"""The report of a quantization: quantized layers, layers in float and the reasons, and the error against float."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerReport:
    """A layer: an operator with its fused ones.

    `module` is the path of its module ("" at the top), `operator` its name ("conv2d + relu"), `node`
    and `anchor` the names of the last and the first of its nodes in the graph. `reason` is why it stayed in float,
    and "" if it is quantized; `given` is true if its integers are those that the model had.
    `sqnr` is the signal to noise ratio of its result in the quantized model against
    float, in dB, and `own_sqnr` the same with float inputs: the error of this layer alone; None if not measured.
    """

    module: str
    operator: str
    node: str
    anchor: str
    quantized: bool
    reason: str = ""
    sqnr: float | None = None
    own_sqnr: float | None = None
    given: bool = False


@dataclass(frozen=True)
class QuantizationReport:
    """The layers of a quantized model in the order of the program.

    `sqnr` is that of the model's outputs against float, in dB, over the calibration inputs; None if not measured.
    """

    backend: str
    scheme: str
    samples: int
    layers: tuple[LayerReport, ...]
    sqnr: float | None = None

    @property
    def quantized(self) -> tuple[LayerReport, ...]:
        """The layers that were quantized."""
        return tuple(layer for layer in self.layers if layer.quantized)

    @property
    def kept(self) -> tuple[LayerReport, ...]:
        """The layers that stayed in float."""
        return tuple(layer for layer in self.layers if not layer.quantized)

    def __str__(self) -> str:
        measured = any(layer.sqnr is not None for layer in self.layers)
        rows = [
            (
                f"{layer.module or '(top)'}",
                layer.operator,
                _decibels(layer.sqnr) if measured else "",
                _decibels(layer.own_sqnr) if measured else "",
                ("as it was given" if layer.given else "quantized") if layer.quantized else f"float: {layer.reason}",
            )
            for layer in self.layers
        ]
        head = ("module", "operator", "dB" if measured else "", "own dB" if measured else "", "")
        widths = [max(len(row[column]) for row in [head, *rows]) for column in range(4)]
        lines = [
            "  ".join(
                text.ljust(width) for text, width in zip(row, [*widths, 0], strict=True) if width or text
            ).rstrip()
            for row in [head, *rows]
        ]
        total = f"{len(self.quantized)} of {len(self.layers)} layers quantized ({self.backend}, {self.scheme})"
        if self.sqnr is not None:
            total += f"; outputs {_decibels(self.sqnr)} dB against float over {self.samples} samples"
        return "\n".join([*lines, total])


def _decibels(value: float | None) -> str:
    return "" if value is None else "exact" if value == float("inf") else f"{value:.1f}"
