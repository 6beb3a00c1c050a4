"""Faults in the numbers at the corners: sizes beyond a tile, values at the ends of their type, shared memory."""

from __future__ import annotations

from typing import Any

import torch

from .fault import Wrapped, fault, wrong

_POINTWISE = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.relu.default", "aten.sigmoid.default")


@wrong(_POINTWISE, "operators/aten.add.Tensor/float32", "patterns/*")
def _offsets_have_sixteen_bits(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Elements after the first 65536 of a tensor are computed from the wrong offset."""
    result = sound(*args, **kwargs)
    if result.numel() <= 65536:
        return result
    flat = result.reshape(-1).clone()
    flat[65536:] = flat[: flat.numel() - 65536]
    return flat.reshape(result.shape)


@wrong(_POINTWISE)
def _the_rest_of_a_vector_is_left_out(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """The remainder of a row of more than sixteen elements after whole vectors of sixteen is zero."""
    result = sound(*args, **kwargs)
    width = result.shape[-1] if result.dim() else 0
    if width > 16 and width % 16:
        result = result.clone()
        result[..., width - width % 16 :] = 0
    return result


@fault("runtime", "operators/aten.eq.Tensor/*", "operators/aten.logical_not.default/*")
def _true_is_255(sound: Any) -> Any:
    """The byte of a true result is 255, which other code does not take for True."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for value in outputs:
                if value.dtype is torch.bool:
                    value.view(torch.uint8).mul_(255)

    return Runtime(sound)


@wrong(("aten.mul.Tensor", "aten.exp.default", "aten.div.Tensor"))
def _infinity_is_the_largest_number(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Results that overflow stop at the largest finite number."""
    result = sound(*args, **kwargs)
    if not result.is_floating_point():
        return result
    largest = torch.finfo(result.dtype).max
    return torch.where(torch.isinf(result), torch.sign(result) * largest, result)


@wrong(("aten.sum.dim_IntList", "aten.sum.default"))
def _sums_of_integers_have_32_bits(name: str, args: list[Any], kwargs: dict[str, Any], sound: Any) -> Any:
    """Sums of integers wrap around at 32 bits."""
    result = sound(*args, **kwargs)
    return result.to(torch.int32).to(torch.int64) if result.dtype is torch.int64 else result


@fault("runtime", "contract/inputs-that-share-memory")
def _two_inputs_may_not_be_one(sound: Any) -> Any:
    """Inputs are changed in place one after the other: two that share memory are both changed."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if len({value.data_ptr() for value in inputs}) < len(inputs):
                inputs = [torch.zeros_like(value) for value in inputs]
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "contract/tensors-anywhere")
def _inputs_must_lie_on_lines(sound: Any) -> Any:
    """Inputs are read from the last multiple of 64 bytes on, which is where torch's allocator puts tensors."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            inputs = [torch.zeros_like(value) if value.data_ptr() % 64 else value for value in inputs]
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)
