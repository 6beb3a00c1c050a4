"""Binds a kernel call of the file to the function that computes it: ATen's out-variants, and the runtime's own few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final

import torch
from torch._ops import OpOverload

from delegatekit_api import FormatError

from ..pte.dtypes import torch_dtype
from ..pte.kernels import NUMBERS, library_of
from . import bindings
from .bindings import BoundCall
from .sizes import Sizes

#: Kernels that copy their first argument into the out argument at this position, whatever its dtype and layout.
_COPIES: Final = {
    "executorch_prim::et_view.default": 2,
    "dim_order_ops::_to_dim_order_copy.out": 3,
    "dim_order_ops::_clone_dim_order.out": 3,
    "et_copy::_h2d_copy.out": 1,
    "et_copy::_d2h_copy.out": 1,
}
_MEMORY_FORMATS: Final = {0: torch.contiguous_format, 1: torch.preserve_format}


def returns_scalar(name: str) -> bool:
    """True if a kernel's result is a number, which replaces the value of the call's last argument."""
    return name in NUMBERS


def scalar_function(name: str) -> Callable[..., Any]:
    """The function that such a kernel computes from the call's other arguments."""
    return NUMBERS[name]


def prepare(
    name: str,
    arguments: Sequence[Any],
    resizable: Mapping[int, Sizes],
    *,
    fixed: bool,
    find_kernel: Callable[[str], Callable[..., None]],
) -> BoundCall:
    """The call of kernel `name` on values: tensors, numbers, lists.

    `resizable` are the sizes of the tensors whose sizes change, by the tensor's id. `fixed`: the values are
    the same objects in all calls. `find_kernel` finds the kernels of libraries. Raises FormatError for a kernel that
    this engine lacks, and for a copy between sizes that differ.
    """
    if library_of(name) is not None:
        given = list(arguments[:-1])  # without the return value
        return BoundCall(find_kernel(name), given, places=[(given, position) for position in range(len(given))])
    if not resizes(name):
        call = _arranged(name, arguments)
        return call if not fixed else bindings.faster(_target(name), call)
    if name in _COPIES:
        source, target = arguments[0], arguments[_COPIES[name]]
        if fixed and id(source) not in resizable and id(target) not in resizable:
            return _copy(name, source, target)
    function = _OWN.get(name, _convert)
    values = list(arguments)
    return BoundCall(
        partial(function, resizable), values, places=[(values, position) for position in range(len(values))]
    )


def specialized(name: str, arguments: Sequence[Any]) -> Callable[[], Any] | None:
    """A copy between tensors, specialized to their present sizes; None if there is nothing to gain."""
    if name not in _COPIES or not arguments[0].is_contiguous():
        return None
    return _copy(name, arguments[0], arguments[_COPIES[name]]).bound()


def resizes(name: str) -> bool:
    """True if a kernel is one of the runtime's own that resize their result here."""
    return name in _COPIES or name in _OWN


def is_data_dependent(name: str) -> bool:
    """True if the sizes of a kernel's results depend on the content of its inputs."""
    if library_of(name) is not None:
        return False  # its sizes are fixed
    target = _target(name)
    return name.startswith("aten::repeat_interleave.") or torch.Tag.dynamic_output_shape in target.tags


def _copy(name: str, source: torch.Tensor, target: torch.Tensor) -> BoundCall:
    if name == "executorch_prim::et_view.default" and source.numel() == target.numel() and source.is_contiguous():
        source = source.view(target.shape)
    if source.shape != target.shape:
        raise FormatError(f"{name} copies {tuple(source.shape)} into {tuple(target.shape)}")
    if source.data_ptr() == target.data_ptr() and source.stride() == target.stride() and source.dtype == target.dtype:
        return BoundCall(_nothing, [])
    return BoundCall(target.copy_, [source])


def _nothing() -> None:
    """A copy of memory to itself."""


def _fit(resizable: Mapping[int, Sizes], tensor: torch.Tensor, shape: Sequence[int]) -> None:
    if tensor.shape != tuple(shape):
        known = resizable.get(id(tensor))
        if known is None:
            raise ValueError(f"sizes {tuple(shape)} do not fit into a tensor of {tuple(tensor.shape)}")
        known.resize(shape)


def _view(resizable: Mapping[int, Sizes], source: torch.Tensor, sizes: list[int], target: torch.Tensor) -> None:
    viewed = source.reshape(sizes)
    _fit(resizable, target, viewed.shape)
    if viewed.data_ptr() != target.data_ptr() or viewed.stride() != target.stride():
        target.copy_(viewed)


def _convert(resizable: Mapping[int, Sizes], source: torch.Tensor, *others: Any) -> None:
    target = others[-1]
    _fit(resizable, target, source.shape)
    target.copy_(source)


def _copy_row(resizable: Mapping[int, Sizes], target: torch.Tensor, source: torch.Tensor, index: int) -> None:
    """As in the runtime: the target has as many rows as were written."""
    known = resizable.get(id(target))
    if known is not None:
        if index and target.shape[1:] != source.shape:
            raise ValueError(f"row {index} has sizes {tuple(source.shape)}, those before {tuple(target.shape[1:])}")
        _fit(resizable, target, (index + 1, *source.shape))
    target[index].copy_(source)


def _empty(resizable: Mapping[int, Sizes], sizes: list[int], *others: Any) -> None:
    _fit(resizable, others[-1], sizes)  # the content does not matter


#: Kernels of the runtime's own that resize their result; those of `_COPIES` that are absent here only convert.
_OWN: Final[dict[str, Callable[..., None]]] = {
    "executorch_prim::et_view.default": _view,
    "executorch_prim::et_copy_index.tensor": _copy_row,
    "dim_order_ops::_empty_dim_order.out": _empty,
}


@cache
def _target(name: str) -> OpOverload:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    target = getattr(getattr(getattr(torch.ops, namespace, None), packet, None), overload or "default", None)
    if not isinstance(target, OpOverload):
        raise FormatError(f"the Python engine has no kernel {name}", hint="run the file in the ExecuTorch runtime")
    return target


@cache
def _parameters(name: str) -> tuple[tuple[str, bool], ...]:
    """Names of a kernel's arguments, and True for those that PyTorch takes as keywords only."""
    return tuple((argument.name, argument.kwarg_only) for argument in _target(name)._schema.arguments)


def _arranged(name: str, arguments: Sequence[Any]) -> BoundCall:
    """Arguments in the order of the runtime's call, rearranged for PyTorch: some by position, some by name."""
    call = BoundCall(_target(name)._op, [])
    # The arguments beyond the operator's own are the return value, which is the out argument again.
    for (parameter, keyword_only), value in zip(_parameters(name), arguments, strict=False):
        converted = _converted(parameter, value)
        if keyword_only:
            call.keywords[parameter] = converted
            call.places.append((call.keywords, parameter))
        else:
            call.places.append((call.positional, len(call.positional)))
            call.positional.append(converted)
    return call


def _converted(name: str, value: Any) -> Any:
    """Codes of types and layouts as PyTorch's objects. Layout and device follow from the out argument."""
    if name in ("layout", "device"):
        return None
    if name == "dtype" and isinstance(value, int):
        return torch_dtype(value)
    if name == "memory_format" and isinstance(value, int):
        if value not in _MEMORY_FORMATS:
            raise FormatError(f"memory format {value} is unknown")
        return _MEMORY_FORMATS[value]
    return value
