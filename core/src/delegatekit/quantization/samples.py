"""Samples for calibration from files: read, converted to the types of the model's example, or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delegatekit_api import QuantizationError


def read_calibration(path: Path, example: Sequence[Any], *, trust: bool = False) -> list[tuple[Any, ...]]:
    """Inputs from a .pt file (a list of inputs, or one tensor for each input) or a .npz file (one array for each).

    Tensors and arrays hold the samples along their first dimension, and are cut to the example's size of it. A .pt file
    with other objects than tensors can run code while it is loaded: it is refused without `trust`.
    Floating-point samples of another type than the example's are converted (NumPy's default is float64).
    Raises FormatError for unreadable files, QuantizationError for samples that do not fit the example.
    """
    return _checked(_read_samples(path, trust=trust), example, str(path))


def read_calibration_of_methods(
    path: Path, examples: Mapping[str, Sequence[Any]], *, trust: bool = False
) -> dict[str, list[tuple[Any, ...]]]:
    """Inputs of several methods, from a .pt file with a dict: for each method what `read_calibration` reads.

    Raises as `read_calibration` does.
    """
    data = _read_samples(path, trust=trust)
    if not isinstance(data, dict) or data.keys() != examples.keys():
        held = f"the methods {', '.join(map(str, data))}" if isinstance(data, dict) else "no dict by method"
        hint = f"torch.save a dict with the inputs of each: {', '.join(examples)}"
        raise QuantizationError(f"holds {held}", where=str(path), hint=hint)
    return {name: _checked(data[name], example, f"{path}, {name}") for name, example in examples.items()}


def _checked(data: Any, example: Sequence[Any], where: str) -> list[tuple[Any, ...]]:
    samples = _samples(data, example, where)
    if not samples:
        raise QuantizationError("holds no samples", where=where, hint="a hundred are usual")
    return [_fitted(sample, example, f"{where}, sample {index}") for index, sample in enumerate(samples)]


def _fitted(sample: tuple[Any, ...], example: Sequence[Any], where: str) -> tuple[Any, ...]:
    """A sample with the types of the example. Raises QuantizationError if it does not fit."""
    if len(sample) != len(example):
        raise QuantizationError(f"has {len(sample)} values, the model takes {len(example)} inputs", where=where)
    values = enumerate(zip(sample, example, strict=True))
    return tuple(_value(value, wanted, position, where) for position, (value, wanted) in values)


def _value(value: Any, wanted: Any, position: int, where: str) -> Any:
    """One value of a sample. Sizes may change from call to call: the model checks whether they fit."""
    import torch

    from .calibration import describe

    if not isinstance(wanted, torch.Tensor):
        return value
    if isinstance(value, torch.Tensor) and value.dim() == wanted.dim():
        if value.dtype == wanted.dtype:
            return value
        if value.is_floating_point() and wanted.is_floating_point():
            return value.to(wanted.dtype)
    raise QuantizationError(
        f"value {position} is {describe(value)}, the model takes {describe(wanted)} there", where=where
    )


def _samples(data: Any, example: Sequence[Any], where: str) -> list[tuple[Any, ...]]:
    """The samples of a file's content, each a tuple of values."""
    import torch

    if isinstance(data, list):
        return [tuple(item) if isinstance(item, tuple | list) else (item,) for item in data]
    tensors = tuple(data) if isinstance(data, tuple) else (data,)
    if not all(isinstance(item, torch.Tensor) and item.dim() for item in tensors):
        raise QuantizationError("holds neither a list of inputs nor tensors", where=where)
    if len(tensors) != len(example):
        raise QuantizationError(f"holds {len(tensors)} tensors, the model takes {len(example)} inputs", where=where)
    count = min(
        len(item) // max(1, int(first.shape[0])) if isinstance(first, torch.Tensor) and first.dim() else 0
        for item, first in zip(tensors, example, strict=True)
    )
    if not count:
        raise QuantizationError("holds fewer samples than one input has", where=where)
    sizes = [int(first.shape[0]) for first in example]
    return [
        tuple(item[index * size : (index + 1) * size] for item, size in zip(tensors, sizes, strict=True))
        for index in range(count)
    ]


def _read_samples(path: Path, *, trust: bool) -> Any:
    import numpy
    import torch

    from ..files import open_file
    from ..files.pickles import read_pickled

    if path.suffix == ".pt":
        return read_pickled(path, trust=trust)
    if path.suffix != ".npz":
        raise QuantizationError("is neither .pt nor .npz", where=str(path))
    with open_file(path) as file:
        try:
            with numpy.load(file, allow_pickle=False) as arrays:
                return tuple(torch.from_numpy(arrays[name]) for name in arrays.files)
        except Exception as error:  # damaged archives and arrays raise without a common class
            what = f"cannot be read: {type(error).__name__}: {error}"
            raise QuantizationError(what, where=str(path)) from error
