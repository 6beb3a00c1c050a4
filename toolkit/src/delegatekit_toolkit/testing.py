"""Test helpers for a backend's parts: calls for constraints and lowerings, payloads for its runtime, comparisons.

Lowering, running and comparing whole modules needs the core and is part of the conformance suite:
`delegatekit_conformance.testkit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from delegatekit_api import Call, DelegatePayload, NamedData, PreprocessResult, ProgramView, TensorSpec


class Apply(torch.nn.Module):
    """A function as a module.

    >>> Apply(torch.relu)(torch.tensor(-1.0))
    tensor(0.)
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        """The function's result."""
        return self.function(*arguments)


def as_module(model: Any) -> torch.nn.Module:
    """A module in evaluation mode: the given one, or one that calls the given function.

    >>> as_module(torch.nn.Dropout()).training, as_module(torch.relu).training
    (False, False)
    """
    return (model if isinstance(model, torch.nn.Module) else Apply(model)).eval()


def view_of(model: Any, *inputs: Any, dynamic_shapes: Any = None) -> ProgramView:
    """The view of an exported module or function, as written by `torch.export`, before the core decomposes it.

    `dynamic_shapes` is that of `torch.export`; a function's inputs are one argument there: `(({0: batch}, None),)`.

    >>> [call.operator for call in view_of(torch.nn.Linear(3, 2), torch.ones(1, 3)).calls()]
    ['aten.linear.default']
    """
    exported = torch.export.export(as_module(model), inputs, dynamic_shapes=dynamic_shapes, strict=False)
    return ProgramView.of(exported)


def call_of(model: Any, *inputs: Any, dynamic_shapes: Any = None) -> Call:
    """The last operator call of an exported module or function.

    >>> call = call_of(lambda x: torch.cat((x, x), dim=-1), torch.ones(2, 3))
    >>> call.operator, call["dim"], call.result
    ('aten.cat.default', -1, cat: float32[2, 6])
    """
    *_, last = view_of(model, *inputs, dynamic_shapes=dynamic_shapes).calls()
    return last


def payload_of(
    compiled: PreprocessResult | bytes,
    inputs: Sequence[TensorSpec] = (),
    outputs: Sequence[TensorSpec] = (),
    *,
    named_data: Mapping[str, bytes] | None = None,
    delegate_id: str = "Test",
) -> DelegatePayload:
    """The payload that the core would pass to a runtime for a compiled partition, or for a blob alone.

    `named_data` is added to that of the partition. There is no `as_program`: it raises NotImplementedError.

    >>> payload = payload_of(b"a blob", [TensorSpec("float32", (2, 3))])
    >>> bytes(payload.blob), payload.inputs
    (b'a blob', (TensorSpec(dtype='float32', shape=(2, 3), dynamic=False),))
    """
    if not isinstance(compiled, PreprocessResult):
        compiled = PreprocessResult(compiled)
    blob = compiled.blob
    whole = bytes(blob) if isinstance(blob, bytes | bytearray | memoryview) else b"".join(map(bytes, blob))
    data = {item.key: memoryview(_bytes(item)) for item in compiled.named_data}
    data.update({key: memoryview(value) for key, value in (named_data or {}).items()})
    return DelegatePayload(
        delegate_id, memoryview(whole), compiled.compile_specs, tuple(inputs), tuple(outputs), data, _no_program
    )


def _bytes(item: NamedData) -> bytes:
    data = item.data
    if not isinstance(data, torch.Tensor):
        return bytes(data)
    return data.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _no_program(keys: Any) -> bytes:
    raise NotImplementedError("this payload has no program around it")


def assert_same_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    """Raise AssertionError unless dtypes, shapes and elements are equal, NaNs and the signs of zeros included.

    >>> assert_same_bits(torch.tensor([0.0, float("nan")]), torch.tensor([0.0, float("nan")]))
    >>> assert_same_bits(torch.zeros(1), -torch.zeros(1))
    Traceback (most recent call last):
    ...
    AssertionError: zeros differ in their signs
    """
    assert got.dtype == want.dtype, f"{got.dtype}, not {want.dtype}"
    assert got.shape == want.shape, f"{tuple(got.shape)}, not {tuple(want.shape)}"
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (got, want)]
    if not torch.equal(*bits):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        zeros = [tensor.signbit() & (tensor == 0) for tensor in (got, want)]
        if not torch.equal(*zeros):
            raise AssertionError("zeros differ in their signs")


def float32_tolerance(terms: int = 1) -> float:
    """The error allowed for float32 results of size 1: 8 units in the last place, and the loss of sums of `terms`.

    Rounding errors of a sum of n terms grow like sqrt(n); the factor 2 leaves room for their tail.

    >>> float32_tolerance() < 1.3e-6 < float32_tolerance(1000)
    True
    """
    return 2.0**-23 * (8.0 + 2.0 * math.sqrt(terms))


def signal_to_noise(got: torch.Tensor, want: torch.Tensor) -> float:
    """The signal-to-noise ratio in dB, where the noise is the difference from `want`; infinite if there is none.

    >>> round(signal_to_noise(torch.tensor([1.1]), torch.tensor([1.0])))
    20
    """
    noise = float((got - want).double().square().sum())
    return math.inf if noise == 0 else 10 * math.log10(float(want.double().square().sum()) / noise)
