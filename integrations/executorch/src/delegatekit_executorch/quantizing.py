"""A DelegateKit quantization scheme as a quantizer of ExecuTorch's pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Node

from delegatekit.quantization import PT2EQuantizer


def quantizer(
    backend: str,
    scheme: str | None = None,
    /,
    *,
    keep_float: Sequence[str | Callable[[Node], bool]] = (),
    group_size: int | None = None,
    qat: bool = False,
    **options: Any,
) -> PT2EQuantizer:
    """A quantizer for `prepare_pt2e` (with `qat` for `prepare_qat_pt2e`), of a backend's scheme: by default its first.

    `keep_float` and `group_size` are those of `delegatekit.quantize`; `options` are the backend's, as its partitioner
    will get them. A quantizer is for one model; afterwards its `report` says what is quantized.

    Raises PluginError for an unknown backend, OptionError for an unknown scheme or option.
    """
    return PT2EQuantizer(backend, scheme, options=options, keep_float=keep_float, group_size=group_size, qat=qat)
