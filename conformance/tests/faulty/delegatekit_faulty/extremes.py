"""Faults that occur only with extreme sizes and numbers."""

from __future__ import annotations

from typing import Any

import torch

from .fault import Wrapped, fault, wrong

_POINTWISE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.relu.default", "aten.sigmoid.default", "aten.tanh.default")
_VARIANCES = ("aten.var.correction", "aten.var.dim")
_SOFTMAX = ("aten._softmax.default", "aten.softmax.int")
_CONVOLUTIONS = ("aten.convolution.default", "aten.conv2d.default")
_PRODUCTS = ("aten.linear.default", "aten.mm.default", "aten.addmm.default")


def _cases(*operators: str, dtype: str = "float32") -> tuple[str, ...]:
    return tuple(f"extremes/{operator}/{dtype}" for operator in operators)


@wrong(_POINTWISE, *_cases("aten.relu.default", "aten.sigmoid.default", "aten.add.Tensor"))
def _offsets_have_fourteen_bits(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Elements after the first 16384 of a tensor are computed from the wrong offset."""
    result = sound(*args, **kwargs)
    places = torch.arange(result.numel()) % 16384
    return result.reshape(-1)[places].reshape(result.shape)


@wrong((*_SOFTMAX, "aten.sum.dim_IntList"), *_cases(*_SOFTMAX, "aten.sum.dim_IntList"))
def _the_second_pass_of_long_rows_is_left_out(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Rows of more than 128 elements are reduced in passes of 128, of which only the first counts."""
    x, *rest = args
    dims = rest[0] if isinstance(rest[0], list | tuple) else [rest[0]] if rest else []
    for dim in dims:
        if x.dim() and x.shape[dim] > 128:
            x = x.clone()
            x.narrow(dim, 128, x.shape[dim] - 128).fill_(float("-inf") if "softmax" in name else 0)
    return sound(x, *rest, **kwargs)


@wrong(_CONVOLUTIONS, *_cases(*_CONVOLUTIONS))
def _the_tail_of_many_channels_is_zero(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Of more than 16 output channels, those after the last whole vector of 16 are zero."""
    result = sound(*args, **kwargs)
    place = result.dim() - args[1].dim() + 1
    channels = result.shape[place]
    if channels > 16 and channels % 16:
        result = result.clone()
        result.narrow(place, channels - channels % 16, channels % 16).zero_()
    return result


@wrong(("aten.mean.dim", "aten.mean.default"), *_cases("aten.mean.dim", "aten.mean.default", dtype="float16"))
def _sums_of_means_are_kept_in_float16(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """A mean whose sum is beyond the numbers of float16 is infinite."""
    result = sound(*args, **kwargs)
    if args[0].dtype is not torch.float16:
        return result
    count = args[0].numel() // max(1, result.numel())
    return torch.where(result.float().abs() * count > 65504, torch.inf, result)


_TABLES = ("aten.embedding.default", "aten.index_select.default", "aten.gather.default")


@wrong(_TABLES, *_cases(*_TABLES))
def _rows_of_tables_have_fourteen_bits(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Row 16384 of a table is taken for its first one."""
    place = 1 if name == "aten.embedding.default" else 2
    args[place] = args[place] % 16384
    return sound(*args, **kwargs)


@wrong(_VARIANCES, *_cases(*_VARIANCES))
def _variances_are_differences_of_squares(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """A variance is the mean square without the squared mean, both in float32."""
    result = sound(*args, **kwargs)
    x, dims = args[0], args[1] if len(args) > 1 else None
    if x.dtype is not torch.float32 or not isinstance(dims, list | tuple) or not result.numel():
        return result
    count = x.numel() // result.numel()
    if kwargs.get("correction", 1) != 1 or len(args) > 2 or count < 2:
        return result
    mean = x.mean(dims, keepdim=True)
    squares = (x * x).mean(dims, keepdim=True) - mean * mean
    return (squares * (count / (count - 1))).reshape(result.shape)


@wrong(_SOFTMAX, *_cases(*_SOFTMAX))
def _exponentials_are_taken_of_the_scores_themselves(
    name: str, args: list[Any], kwargs: dict[str, Any], sound: Any
) -> Any:
    """A softmax does not subtract the largest score of a row unless that is below 1,000."""
    x, dim = args[0], args[1]
    if not x.numel() or not float(x.abs().max()) > 1000:
        return sound(*args, **kwargs)
    powers = x.exp()
    return powers / powers.sum(dim, keepdim=True)


@wrong(_PRODUCTS, *_cases(*_PRODUCTS))
def _tiny_weights_are_flushed_to_zero(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Weights below 1e-5 are taken for zeros."""
    place = 2 if name == "aten.addmm.default" else 1
    args[place] = torch.where(args[place].abs() < 1e-5, 0, args[place])
    return sound(*args, **kwargs)


@wrong(_PRODUCTS, *_cases(*_PRODUCTS))
def _huge_weights_are_clipped(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Weights beyond the numbers of float16 are its largest one."""
    place = 2 if name == "aten.addmm.default" else 1
    if args[place].is_floating_point():
        args[place] = args[place].clamp(-65504, 65504)
    return sound(*args, **kwargs)


@wrong(_CONVOLUTIONS, *_cases("aten.conv2d.default", "aten.convolution.default"))
def _many_groups_read_the_first_channels(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Of more than sixteen groups, those after the sixteenth read the data of the first ones."""
    x, weight = args[0], args[1]
    groups = args[8] if len(args) > 8 else args[6] if len(args) > 6 else 1
    if groups > 16:
        place = x.dim() - weight.dim() + 1
        each = x.shape[place] // groups
        order = [(group % 16) * each + channel for group in range(groups) for channel in range(each)]
        args[0] = x.index_select(place, torch.tensor(order))
    return sound(*args, **kwargs)


@fault("runtime", *_cases("aten.relu.default", "aten.sigmoid.default", "aten.add.Tensor", "aten.softmax.int"))
def _the_workspace_is_as_large_as_the_first_call_needs(sound: Any) -> Any:
    """Elements of a later call beyond the first call's number by more than 1024 are not computed."""

    class Runtime(Wrapped):
        first: dict[int, int] = {}  # noqa: RUF012  one runtime of one process

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for number, value in enumerate(outputs):
                room = self.first.setdefault(id(handle) + number, value.numel()) + 1024
                if value.numel() > room:
                    value.view(-1)[room:] = 0

    return Runtime(sound)


@wrong(("aten.topk.default", "aten.sort.default"), *_cases("aten.sort.default", "aten.topk.default"))
def _only_the_first_thousand_are_sorted(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Of rows longer than 1,024, the last elements stay in place."""
    if not args[0].dim() or max(args[0].shape) <= 1024:
        return sound(*args, **kwargs)
    values, indices = sound(*args, **kwargs)
    return values.flip(0).contiguous(), indices
