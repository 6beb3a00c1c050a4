"""Models larger than memory: weights stay in their files, mapped, in the type that they are stored in.

They are converted to the type of the computation at each use. A program that is exported so has the conversions in it,
and lowering computes their results layer by layer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import FakeTensor

#: Bytes of a model's files from which on its weights are mapped; those of smaller ones are loaded.
LARGE: Final = 512 << 20
#: Numbers of a parameter from which on it stays mapped.
_MAPPED: Final = 1 << 16


def convert_at_use(model: torch.nn.Module, dtype: torch.dtype) -> None:
    """Let a model compute in another type than its weights have: small ones are converted, others at each use."""
    for module in model.modules():
        names = []
        for name, parameter in module._parameters.items():
            if parameter is None or not parameter.is_floating_point() or parameter.dtype is dtype:
                continue
            if parameter.numel() < _MAPPED:
                parameter.data = parameter.data.to(dtype)
            else:
                names.append(name)
        if names:
            _convert_in(module, names, dtype)


def stored(module: torch.nn.Module, name: str = "weight") -> torch.Tensor:
    """A parameter as it is stored, which is not converted."""
    found = module._parameters[name]
    assert found is not None
    return found.detach()


def computing_dtype(module: torch.nn.Module, name: str = "weight") -> torch.dtype:
    """The type that a parameter has where it is used."""
    found: torch.dtype = getattr(type(module), "computing_dtype", stored(module, name).dtype)
    return found


def _convert_in(module: torch.nn.Module, names: list[str], dtype: torch.dtype) -> None:
    """Give a module a class of its own, as `torch.nn.utils.parametrize` does: these parameters are properties of it."""
    kind: Any = type(module)
    properties = {name: property(partial(_converted, name=name, dtype=dtype)) for name in names}
    given = {"__module__": kind.__module__, "computing_dtype": dtype}
    module.__class__ = type(kind.__name__, (kind,), {**given, **properties})


def _converted(module: torch.nn.Module, name: str, dtype: torch.dtype) -> torch.Tensor:
    parameter = module._parameters[name]
    assert parameter is not None
    if (mode := active_fake_mode()) is not None and not isinstance(parameter, FakeTensor):
        parameter = mode.from_tensor(parameter)  # type: ignore[assignment]  # or it were converted in fact
    return parameter.to(dtype)
