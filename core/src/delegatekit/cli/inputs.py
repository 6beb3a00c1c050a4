"""Inputs of a method that commands run, from files or random, and the backends with isolated runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from delegatekit_api import DelegateKitError, TensorSpec

from .console import usage

if TYPE_CHECKING:
    pass


class Takes(Protocol):
    """A method, or the signature of one: specs of its flat inputs, and those that are no tensors by position."""

    @property
    def inputs(self) -> tuple[TensorSpec | None, ...]:
        """Specs of the flat inputs; None for what is no tensor."""

    @property
    def fixed_inputs(self) -> Mapping[int, Any]:
        """Position of what is no tensor -> its only value."""


def apart(isolate: Sequence[str]) -> bool | Sequence[str]:
    """Whose runtimes get a process of their own: those named, or all if "all" is among them."""
    return "all" in isolate or isolate


def inputs_for(method: Takes, paths: Sequence[str], *, seed: int, trust: bool) -> list[Any]:
    """The content of files, one for each input of the method, or random inputs without files.

    An input that is not a tensor has one value only, which the file says.

    Raises DelegateKitError for files that cannot be read, and ends the command where their number is wrong.
    """
    return read_inputs(method.inputs, paths, trust=trust) if paths else _random(method, seed)


def read_inputs(specs: Sequence[TensorSpec | None], paths: Sequence[str], *, trust: bool) -> list[Any]:
    """The content of files, one for each spec. Ends the command if their number is wrong, raises as `inputs_for`."""
    if len(paths) != len(specs):
        usage(f"the method takes {len(specs)} inputs, {len(paths)} files are given")
    return [read_value(Path(path), spec, trust=trust) for path, spec in zip(paths, specs, strict=True)]


def _random(method: Takes, seed: int) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(seed)
    values: list[Any] = []
    for place, spec in enumerate(method.inputs):
        if spec is None:
            values.append(method.fixed_inputs[place])
            continue
        dtype = getattr(torch, spec.dtype)
        if dtype.is_floating_point:
            values.append(torch.randn(spec.shape, generator=generator).to(dtype))
        else:
            values.append(torch.randint(0, 2, spec.shape, generator=generator).to(dtype))
    return values


def read_value(path: Path, spec: TensorSpec | None, *, trust: bool) -> Any:
    """The tensor in a .npy, .pt or image file; an image is resized to `spec`."""
    import torch

    from delegatekit_toolkit.images import read_image

    from ..files import check_file, open_file
    from ..files.pickles import read_pickled

    if not path.exists():
        usage(f"input {path} does not exist")
    if path.suffix == ".pt":
        return read_pickled(path, trust=trust)
    if path.suffix != ".npy":
        return read_image(check_file(path), spec)
    import numpy

    with open_file(path) as file:
        try:
            return torch.from_numpy(numpy.load(file, allow_pickle=False))
        except Exception as error:
            raise DelegateKitError(f"cannot be read: {error}", where=str(path)) from error
