"""Faults in the numbers: an operator computes something a little different, as kernels without comparison tests do."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.nn.functional as F

from .fault import fault, wrong

_POINTWISE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor")


@wrong("aten.addmm.default")
def _addmm_ignores_beta(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The factor of the added matrix is ignored."""
    return sound(*args, **{key: value for key, value in kwargs.items() if key != "beta"})


@wrong("aten.elu.default")
def _elu_ignores_alpha(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The slope of elu is 1, for any alpha."""
    return sound(args[0], 1.0, *args[2:], **{key: value for key, value in kwargs.items() if key != "alpha"})


@wrong("aten.leaky_relu.default")
def _leaky_relu_has_one_slope(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The slope of leaky_relu is always 0.01."""
    return sound(args[0])


@wrong("aten.mul.Tensor")
def _broadcasts_the_wrong_side(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """An operand of a lower rank is aligned with the first dimensions where that fits, too."""
    x, y = args
    if x.dim() > y.dim() > 0 and x.shape[: y.dim()] == y.shape:
        y = y.reshape(*y.shape, *[1] * (x.dim() - y.dim()))
    return sound(x, y, **kwargs)


@wrong("aten.convolution.default")
def _padding_is_one_too_small_at_the_end(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The last column of a padded convolution is computed as if the input were one element shorter."""
    result = sound(*args, **kwargs)
    if args[4][-1] > 0 and not args[6]:
        result = result.clone()
        result[..., -1] = sound(args[0][..., :-1], *args[1:], **kwargs)[..., -1] if args[0].shape[-1] > 1 else 0
    return result


@wrong("aten.convolution.default")
def _dilation_is_ignored(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Convolutions ignore the dilation; the result keeps its size."""
    result = sound(*args, **kwargs)
    if max(args[5]) == 1 or args[6]:
        return result
    dense = sound(*args[:5], [1] * len(args[5]), *args[6:])
    window = tuple(slice(0, size) for size in result.shape)
    return dense[window].contiguous()


@wrong("aten.convolution.default")
def _groups_are_exchanged(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The groups of a grouped convolution write their channels in reversed order."""
    result = sound(*args, **kwargs)
    groups = args[8]
    if groups == 1:
        return result
    axis = result.dim() - len(args[3]) - 1
    return torch.cat(tuple(reversed(result.chunk(groups, axis))), axis)


@wrong("aten.convolution.default")
def _strides_are_exchanged(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Height and width exchange their strides; the missing part of the result is zeros."""
    result = sound(*args, **kwargs)
    if len(set(args[3])) == 1:
        return result
    other = sound(*args[:3], list(reversed(args[3])), *args[4:])
    window = tuple(slice(0, min(sizes)) for sizes in zip(result.shape, other.shape, strict=True))
    exchanged = torch.zeros_like(result)
    exchanged[window] = other[window]
    return exchanged


@wrong("aten.convolution.default")
def _bias_is_dropped_for_one_channel(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Convolutions with one output channel forget their bias."""
    if args[1].shape[0] == 1 and not args[6]:
        args = [*args[:2], None, *args[3:]]
    return sound(*args, **kwargs)


@wrong("aten.avg_pool2d.default")
def _padding_counts_always(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Averages count the padding even if count_include_pad is false."""
    if len(args) > 5:
        args = [*args[:5], True, *args[6:]]
    return sound(*args, **(kwargs | ({"count_include_pad": True} if "count_include_pad" in kwargs else {})))


@wrong(
    ("aten.max_pool2d.default", "aten.max_pool2d_with_indices.default"),
    "operators/aten.max_pool2d*",
)
def _pools_ignore_the_last_window(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The additional window of ceil_mode holds zeros."""
    result = sound(*args, **kwargs)
    if len(args) > 5 and args[5]:
        values = (result[0] if isinstance(result, tuple) else result).clone()
        values[..., -1] = 0
        return (values, *result[1:]) if isinstance(result, tuple) else values
    return result


@wrong("aten.relu.default")
def _relu_drops_nan(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Relu makes 0 of NaN."""
    return sound(torch.nan_to_num(args[0], 0.0, float("inf"), float("-inf")))


@wrong("aten.maximum.default")
def _maximum_drops_nan(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Maximum returns the other number where one is NaN."""
    return torch.fmax(*args)


@wrong("aten._softmax.default", "operators/aten._softmax*", "operators/aten.softmax*")
def _softmax_overflows(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Softmax exponentiates without subtracting the largest element first."""
    exponents = args[0].exp()
    return exponents / exponents.sum(args[1], keepdim=True)


@wrong("aten._softmax.default", "operators/aten._softmax*", "operators/aten.softmax*")
def _softmax_counts_dims_from_the_front(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Softmax over the last dimension of a tensor of rank 4 takes dimension 1."""
    x, dim, *rest = args
    return sound(x, 1 if x.dim() == 4 and dim % 4 == 3 else dim, *rest)


@wrong("aten.round.default")
def _rounds_half_away_from_zero(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Ties are rounded away from zero, not to even."""
    x = args[0]
    if not x.is_floating_point():
        return sound(*args)
    return torch.where((x - x.trunc()).abs() == 0.5, x.sign() * (x.abs() + 0.5), sound(x))


@wrong("aten.div.Tensor_mode")
def _floor_division_truncates(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Floor division rounds towards zero."""
    return torch.div(*args, rounding_mode="trunc")


@wrong("aten.remainder.Tensor")
def _remainder_has_the_sign_of_the_dividend(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The remainder has the sign of the dividend, as in C."""
    return torch.fmod(*args)


@wrong(_POINTWISE)
def _small_integers_saturate(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """int8 results stop at -128 and 127 instead of wrapping around."""
    result = sound(*args, **kwargs)
    if result.dtype is not torch.int8:
        return result
    wide = sound(*(value.to(torch.int32) if isinstance(value, torch.Tensor) else value for value in args), **kwargs)
    return wide.clamp(-128, 127).to(torch.int8)


@wrong(_POINTWISE)
def _long_integers_go_through_float(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """int64 is computed in float32, which holds 24 bits."""
    result = sound(*args, **kwargs)
    if result.dtype is not torch.int64:
        return result
    return sound(*(value.float() if isinstance(value, torch.Tensor) else value for value in args), **kwargs).long()


@wrong("aten.gelu.default")
def _gelu_is_always_approximated(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The exact gelu is computed with the tanh formula."""
    return F.gelu(args[0], approximate="tanh")


@wrong("aten.hardtanh.default")
def _hardtanh_has_fixed_bounds(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The bounds of hardtanh are -1 and 1."""
    return sound(args[0])


@wrong("aten.clamp.default")
def _clamp_forgets_the_lower_bound(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Clamp with both bounds only looks at the upper one."""
    if len(args) == 3 and args[1] is not None and args[2] is not None:
        args = [args[0], None, args[2]]
    return sound(*args, **kwargs)


@wrong(("aten.var.correction", "aten.var.dim"))
def _variance_has_no_correction(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The variance divides by n."""
    dim = args[1] if len(args) > 1 else None
    return torch.var(args[0], dim, correction=0, keepdim=bool(kwargs.get("keepdim", False)))


@wrong("aten.argmax.default")
def _argmax_takes_the_last(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Among equal largest elements argmax takes the last, not the first."""
    x, *rest = args
    dim = rest[0] if rest else None
    if dim is None or x.dim() == 0:
        return sound(*args, **kwargs)
    return x.shape[dim] - 1 - sound(x.flip(dim), *rest, **kwargs)


@wrong("aten.cumsum.default")
def _cumsum_is_exclusive(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The running sum leaves out the element itself."""
    result = sound(*args, **kwargs)
    return result - args[0].to(result.dtype)


@wrong("aten.index_select.default")
def _index_select_is_reversed(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Indices are read from the end where a tensor has rank 3."""
    return sound(args[0], args[1], args[2].flip(0) if args[0].dim() == 3 and args[2].dim() else args[2])


@wrong("aten.index_select.default", "contract/index-beyond-the-end:index_select")
def _indices_are_clipped(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """An index beyond the end reads the last element."""
    return sound(args[0], args[1], args[2].clamp(max=max(args[0].shape[args[1]] - 1, 0)) if args[0].dim() else args[2])


@wrong("aten.constant_pad_nd.default")
def _pads_with_zero(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Padding is always zero."""
    return sound(*args[:2])


@wrong(("aten.slice_copy.Tensor", "aten.slice.Tensor"), "operators/aten.slice.Tensor/*")
def _slice_starts_one_late(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Slices with a step above 1 start one element late."""
    if len(args) < 5 or args[4] == 1:
        return sound(*args, **kwargs)
    return sound(torch.roll(args[0], -1, args[1]), *args[1:], **kwargs)


@wrong(
    ("aten.native_layer_norm.default", "aten.layer_norm.default"),
    "operators/aten.native_layer_norm*",
    "operators/aten.layer_norm*",
)
def _layer_norm_ignores_eps(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Layer norm adds 1e-5 to the variance, for any eps."""
    return sound(*args[:4], 1e-5, *args[5:], **kwargs)


@wrong("aten.upsample_bilinear2d.vec", "operators/aten.upsample_bilinear2d*")
def _corners_are_never_aligned(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Bilinear interpolation ignores align_corners."""
    return sound(args[0], args[1], False, *args[3:], **kwargs)


@wrong("aten.scaled_dot_product_attention.default", "operators/aten.scaled_dot_product_attention*", "patterns/*")
def _attention_forgets_its_scale(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Attention ignores its argument scale."""
    return sound(*args, **(kwargs | {"scale": None}))


@wrong("aten.sum.dim_IntList")
def _halves_are_summed_in_halves(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """float16 sums are rounded to eight bits on the way."""
    x = args[0]
    return sound(x.bfloat16(), *args[1:], **kwargs).to(x.dtype) if x.dtype is torch.float16 else sound(*args, **kwargs)


@wrong(_POINTWISE)
def _crashes_at_rank_five(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The process ends with a segmentation fault where a tensor has rank 5."""
    if any(isinstance(value, torch.Tensor) and value.dim() == 5 for value in args):
        os.kill(os.getpid(), signal.SIGSEGV)
    return sound(*args, **kwargs)


@wrong("aten.sum.dim_IntList")
def _hangs_without_elements(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """A loop never ends where a sum has no elements."""
    while any(isinstance(value, torch.Tensor) and value.numel() == 0 for value in args):
        time.sleep(0.1)
    return sound(*args, **kwargs)


@wrong("aten.sigmoid.default")
def _nothing_for_rank_zero(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """A tensor of rank 0 fails."""
    if args[0].dim() == 0:
        raise ValueError("no dimensions")
    return sound(*args, **kwargs)


@wrong(("aten.max.dim", "aten.min.dim", "aten.topk.default"))
def _two_results_are_exchanged(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The first two results exchange places where they have one shape and dtype."""
    first, second, *rest = sound(*args, **kwargs)
    if first.shape == second.shape and first.dtype == second.dtype:
        first, second = second, first
    return (first, second, *rest)


@fault("call", "operators/aten.relu*", "patterns/*", "graphs/alone*")
def _fused_activations_are_dropped(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """An activation directly after a convolution or a product of matrices does nothing."""
    result = sound(*args, **kwargs)
    if name in ("aten.convolution.default", "aten.addmm.default", "aten.mm.default", "aten.linear.default"):
        _fused_outputs[id(result)] = result  # kept alive, so that its id stays its own
    elif name in ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default") and id(args[0]) in _fused_outputs:
        return args[0].clone()
    return result


_fused_outputs: dict[int, torch.Tensor] = {}
