"""The reasons why our blobs differ from stock ExecuTorch's, for each difference that the comparison finds."""

from __future__ import annotations

import re
from typing import Final

_TRANSFORMERS: Final = "vit-base bert-base llama-100m"

_FOLDED: Final = (
    "What depends on constants alone (positions, masks, their embeddings, sines) is computed while lowering"
)
_MATRICES: Final = (
    "Linear layers take any number of axes here; stock's are of matrices, with views before and after, those that only "
    "drop or add axes of 1 as squeeze and unsqueeze"
)
_ATTENTION: Final = (
    "Attention is one operator until the backend lowers it; stock's parts look for rows that attend to nothing"
)
_SCALES: Final = "Stock scales the operands of attention outside its delegate"
_MASK: Final = (
    "The mask of the input is read by `index`; stock has `gather`, and leaves part of it outside its delegate"
)
_PADS: Final = "Pads are part of the convolutions that read them; pads of nothing are dropped"
_AXES: Final = "Axes are counted from the front"
_MAXIMA: Final = "Positions of maxima that nothing reads are not computed"
_END: Final = "The end of the tensor, as a number"
_LAYOUTS: Final = "Stock changes the layout before the view, ours after it"

#: Models ("" for all), regular expression of whole differences, reason.
_REASONS: Final[tuple[tuple[str, str, str], ...]] = (
    ("", r"only stock: aten\.constant_pad_nd\.default", _PADS),
    ("", r"(sizes|argument 4) of et_vk\.conv_with_clamp\.default.*", _PADS),
    ("", r"argument 1 of aten\.(mean\.dim|_softmax\.default|cat\.default): stock (-1|\[-1, -2\]), ours .*", _AXES),
    (
        "",
        r"argument 3 of aten\.slice_copy\.Tensor: stock 9223372036854775807, .*",
        "The end of the tensor, as a number",
    ),
    ("", r"argument 10 of et_vk\.conv_with_clamp\.default: .*, ours inf", "No bound: both are infinite in float32"),
    ("", r"only (stock: aten\.max_pool2d_with_indices|ours: aten\.max_pool2d)\.default", _MAXIMA),
    ("mobilenet-v2 resnet-50", r"form of aten\.view_copy\.default: .*WIDTH_PACKED, ours .*CHANNELS_PACKED", _LAYOUTS),
    (
        "tiny-fp16",
        r"only ours: aten\.(mean\.dim|squeeze_copy\.dims)",
        "Stock leaves means over two axes that are not kept outside its delegate",
    ),
    (
        _TRANSFORMERS,
        r"sizes of aten\.(linear|gelu|(view|permute|squeeze|unsqueeze)_copy)\..*",
        _MATRICES,
    ),
    (_TRANSFORMERS, r"only (stock|ours): aten\.(view|squeeze|unsqueeze)_copy\..*", _MATRICES),
    ("vit-base bert-base", r"only stock: aten\.permute_copy\.default", "Permutations that follow each other are one"),
    ("llama-100m", r"only stock: aten\.(permute_copy|eq\.Scalar|logical_not|full_like|where).*", _ATTENTION),
    ("llama-100m", r"only ours: aten\.mul\..*", _SCALES),
    (_TRANSFORMERS, r"only (stock|ours): et_vk\.prepack\.default", _FOLDED),
    (
        _TRANSFORMERS,
        r"only stock: aten\.(arange|full|expand_copy|slice_copy|cat|embedding|where|bitwise_and|add|sub|mul)\..*",
        _FOLDED,
    ),
    (_TRANSFORMERS, r"only stock: aten\.(eq|ne|ge|le|cos|sin)\..*", _FOLDED),
    ("llama-100m", r"only stock: dim_order_ops\._to_dim_order_copy\.default", _FOLDED),
    ("bert-base", r"only stock: (dim_order_ops\._to_dim_order_copy|aten\.gather)\.default", _MASK),
    ("bert-base", r"only ours: aten\.(_to_copy|index|ne|logical_and)\..*", _MASK),
    ("bert-base", r"form of aten\.view_copy\.default: .*, ours BUFFER WIDTH_PACKED", f"{_MASK}, which takes buffers"),
)


def reason(model: str, difference: str) -> str | None:
    """The reason for a difference; None if there is none yet."""
    return next(
        (
            text
            for models, pattern, text in _REASONS
            if (not models or model in models) and re.fullmatch(pattern, difference)
        ),
        None,
    )
