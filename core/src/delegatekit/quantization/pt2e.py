"""A scheme as a torchao Quantizer, for who calls `prepare_pt2e` and `convert_pt2e` without `quantize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import Quantizer

from ..plugins import LoadedBackend
from .choices import KeptInFloat
from .flow import blaming_quantizer, checked_report, is_weight_scheme, make_quantizer, make_trial
from .graph import normalize
from .products import products_to_linear
from .report import QuantizationReport
from .schemes import choose_scheme
from .weights import quantize_weights


class PT2EQuantizer(Quantizer):  # type: ignore[misc]
    """A scheme of a backend as a torchao Quantizer, for one model.

    After `prepare_pt2e` its `report` says what is quantized, and why the rest is not. Schemes that torchao cannot
    annotate, of weights alone or with activations row by row, write their operators when the model is prepared.
    """

    def __init__(
        self,
        backend: str,
        scheme: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        keep_float: Sequence[str | Callable[[Node], bool]] = (),
        group_size: int | None = None,
        qat: bool = False,
    ) -> None:
        """Raise PluginError for an unknown backend, OptionError for an unknown scheme or option."""
        super().__init__()
        self._loaded, self._scheme = choose_scheme(backend, scheme, options, group_size)
        self._options = options
        self._kept = KeptInFloat(keep_float)
        self._writes = bool(self._scheme.rules) and is_weight_scheme(self._scheme)
        self.report: QuantizationReport | None = None
        if not self._writes:
            self._inner, self._make_report = make_quantizer(self._loaded, self._scheme, self._kept, options, qat=qat)

    @property
    def backend(self) -> LoadedBackend:
        """The backend whose scheme it is."""
        return self._loaded

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Prepare the graph, or write the scheme into it."""
        if not self._writes:
            with blaming_quantizer(self._loaded, self._scheme):
                transformed: GraphModule = self._inner.transform_for_annotation(model)
            return transformed
        normalize(model)
        products_to_linear(model, self._scheme, self._kept)
        trial = make_trial(self._loaded, self._loaded.make_options(self._options or {}))
        model, layers = quantize_weights(model, self._scheme, self._kept, trial)
        self.report = QuantizationReport(self._loaded.name, self._scheme.name, 0, layers)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate the layers of the scheme."""
        if not self._writes:
            with blaming_quantizer(self._loaded, self._scheme):
                self._inner.annotate(model)
        return model

    def validate(self, model: GraphModule) -> None:
        """Raise QuantizationError if nothing is quantized, or a choice of `keep_float` matches nothing."""
        if not self._writes:
            with blaming_quantizer(self._loaded, self._scheme):
                self._inner.validate(model)
            self.report = self._make_report()
        self._kept.check()
        if self._writes and self.report is not None:
            checked_report(self.report)
