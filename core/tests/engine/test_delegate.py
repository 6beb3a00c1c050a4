"""Delegates on the Python engine: the lookup of a plugin's runtime, its inputs, and its failures."""

from __future__ import annotations

import gc
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import handmade
import pytest
import torch

import delegatekit
from delegatekit.pte import PteImage, read, schema, to_bytes
from delegatekit.pte.validation import validate
from delegatekit_api import (
    Availability,
    CompileSpec,
    DelegateKitError,
    DelegatePayload,
    ExecutionError,
    FormatError,
    NamedData,
    PluginError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_toolkit.flatbuffer import serialize

X = torch.arange(5.0)
MANIFEST = {
    "producer": "test",
    "delegates": [{"method": "forward", "index": 0, "distribution": "dk-double", "version": "3"}],
}


class Doubling:
    """A runtime that writes twice its first input into every output."""

    def __init__(self) -> None:
        self.payloads: list[DelegatePayload] = []
        self.destroyed: list[int] = []
        self.error: Exception | None = None

    def is_available(self) -> Availability:
        return Availability(True)

    def init(self, payload: DelegatePayload) -> int:
        if bytes(payload.blob) == b"bad":
            raise ValueError("bad blob")
        self.payloads.append(payload)
        return len(self.payloads)

    def execute(self, handle: int, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        if self.error is not None:
            raise self.error
        for output in outputs:
            output.copy_(2 * inputs[0])

    def destroy(self, handle: int) -> None:
        self.destroyed.append(handle)


@pytest.fixture
def runtime() -> Doubling:
    return Doubling()


def load(data: bytes, runtime: Doubling, available: Availability | None = None) -> Any:
    """The program, with `runtime` as that of the only installed backend, whose delegates have the id "Test"."""

    def find(delegate_id: str) -> Any:
        if delegate_id != "Test":
            raise PluginError(f"no installed backend runs {delegate_id}", hint="install one")
        return SimpleNamespace(
            name="test",
            runtime_availability=lambda: available or runtime.is_available(),
            create_runtime=lambda: runtime,
        )

    return delegatekit.load(data, find_backend=find)


def program(
    *, calls: int = 1, blob: bytes = b"blob", delegate_id: str = "Test", named: dict[str, bytes] | None = None
) -> bytes:
    """x doubled by a delegate, `calls` times in a row, each with an instance of its own."""
    values = [handmade.tensor([5], 64 * index) for index in range(calls + 1)]
    delegates = [
        schema.BackendDelegate(
            delegate_id,
            schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0),
            [schema.CompileSpec("level", b"\2"), schema.CompileSpec("empty", b"")],
        )
        for _ in range(calls)
    ]
    steps = [schema.DelegateCall(index, [index, index + 1]) for index in range(calls)]
    plan = handmade.plan(values, [0], [calls], steps, delegates=delegates, non_const_buffer_sizes=[0, 512])
    data = tuple(NamedData(key, value) for key, value in (named or {}).items())
    return to_bytes(PteImage((plan,), delegate_blobs=(blob,), named_data=data))


def test_a_delegate_runs_on_the_arena(runtime: Doubling) -> None:
    method = load(program(calls=3), runtime)["forward"]
    for _ in range(2):
        assert torch.equal(method(X), 8 * X)
    assert len(runtime.payloads) == 3


def test_a_runtime_is_given_blob_specs_shapes_and_named_data(runtime: Doubling) -> None:
    _ = load(program(named={"weight": b"w" * 20}), runtime)["forward"]
    (payload,) = runtime.payloads
    assert (payload.delegate_id, bytes(payload.blob)) == ("Test", b"blob")
    assert payload.compile_specs == (CompileSpec("level", b"\2"), CompileSpec("empty", b""))
    assert payload.inputs == payload.outputs == (TensorSpec("float32", (5,)),)
    assert {key: bytes(data) for key, data in payload.named_data.items()} == {"weight": b"w" * 20}


def test_a_blob_inside_the_flatbuffer_is_found_in_a_file_without_segments(runtime: Doubling) -> None:
    (plan,) = read(program()).program.execution_plan or ()
    assert plan.delegates is not None
    plan.delegates[0].processed = schema.BackendDelegateDataReference(schema.DataLocation.INLINE, 0)
    inline = [schema.BackendDelegateInlineData(b"inline blob")]
    data = serialize(schema.Program(execution_plan=[plan], backend_delegate_data=inline), schema.PTE_IDENTIFIER)
    assert torch.equal(load(data, runtime)["forward"](X), 2 * X)
    assert bytes(runtime.payloads[0].blob) == b"inline blob"


def test_the_delegate_alone_as_a_file_has_unplanned_arguments_and_the_named_data_asked_for(runtime: Doubling) -> None:
    _ = load(program(named={"a": b"1", "b": b"22"}), runtime)["forward"]
    data = runtime.payloads[0].as_program(["b"])
    file = read(data)
    validate(file)
    (plan,) = file.program.execution_plan or ()
    assert plan.name == "forward"
    tensors = [value.val for value in plan.values or ()]
    assert all(isinstance(t, schema.Tensor) and t.allocation_info is None and not t.data_buffer_idx for t in tensors)
    assert bytes(file.delegate_blob(plan.delegates[0])) == b"blob"  # type: ignore[index]
    assert {key: bytes(value) for key, value in file.named_data.items()} == {"b": b"22"}
    assert torch.equal(load(data, runtime)["forward"](X), 2 * X)
    with pytest.raises(FormatError, match="needs the named data 'c'"):
        runtime.payloads[0].as_program(["c"])


def test_a_delegate_that_nobody_runs_is_named_before_anything_runs(runtime: Doubling) -> None:
    data = program(delegate_id="Other")
    with pytest.raises(RuntimeUnavailableError) as caught:
        _ = load(data, runtime)["forward"]
    assert "method forward, delegate Other: no installed backend runs Other" in str(caught.value)
    assert "install one" in str(caught.value)


def test_the_plugin_that_made_the_file_is_named_where_it_is_missing(runtime: Doubling) -> None:
    data = program(delegate_id="Other", named={"delegatekit.manifest": json.dumps(MANIFEST).encode()})
    with pytest.raises(RuntimeUnavailableError, match=r"pip install dk-double \(the file was made with dk-double 3\)"):
        _ = load(data, runtime)["forward"]


def test_a_runtime_that_cannot_work_here_says_why(runtime: Doubling) -> None:
    program_ = load(program(), runtime, Availability(False, "no device"))
    with pytest.raises(RuntimeUnavailableError, match=r"backend test \(Test\) cannot work here: no device"):
        _ = program_["forward"]
    assert not runtime.payloads


def test_a_blob_that_the_runtime_refuses_is_a_format_error(runtime: Doubling) -> None:
    with pytest.raises(FormatError, match=r"delegate Test: its runtime refused the blob: ValueError: bad blob"):
        _ = load(program(blob=b"bad"), runtime)["forward"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (ZeroDivisionError("oops"), ExecutionError, r"method forward, delegate Test: failed: ZeroDivisionError: oops"),
        (ExecutionError("device lost"), ExecutionError, "device lost"),
    ],
)
def test_a_runtime_that_fails_is_named(
    runtime: Doubling, error: Exception, kind: type[DelegateKitError], words: str
) -> None:
    method = load(program(), runtime)["forward"]
    runtime.error = error
    with pytest.raises(kind, match=words):
        method(X)
    runtime.error = None
    assert torch.equal(method(X), 2 * X)


class Unreadable(BaseException):
    """An object that cannot be shown."""

    def __str__(self) -> str:
        raise Unreadable


@pytest.mark.parametrize("error", [Unreadable(), SystemExit(3), GeneratorExit()])
def test_a_runtime_that_raises_no_exception_is_named_too(runtime: Doubling, error: Any) -> None:
    method = load(program(), runtime)["forward"]
    runtime.error = error
    with pytest.raises(ExecutionError, match=rf"delegate Test: failed: {type(error).__name__}"):
        method(X)
    with pytest.raises(FormatError, match=rf"its runtime refused the blob: {type(error).__name__}"):
        runtime.init = lambda payload: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
        _ = load(program(), runtime)["forward"]


def test_a_runtime_that_fails_to_release_a_delegate_is_reported(runtime: Doubling) -> None:
    loaded = load(program(), runtime)
    assert torch.equal(loaded["forward"](X), 2 * X)
    runtime.destroyed = None  # type: ignore[assignment]
    with pytest.warns(UserWarning, match="delegate Test: its runtime failed to release the delegate: AttributeError"):
        loaded.close()


def test_handles_are_destroyed_once_when_closed_or_collected(runtime: Doubling) -> None:
    first = load(program(calls=2), runtime)
    method = first["forward"]
    method.close()
    method.close()
    first.close()
    assert runtime.destroyed == [1, 2]
    second = load(program(), runtime)
    second.new_method("forward")(X)
    del second
    gc.collect()
    assert runtime.destroyed == [1, 2, 3]


def test_handles_are_destroyed_if_a_later_delegate_cannot_be_loaded(runtime: Doubling) -> None:
    plan = read(program(calls=2)).program.execution_plan[0]  # type: ignore[index]
    assert plan.delegates is not None
    plan.delegates[0].processed = schema.BackendDelegateDataReference(1, 0)
    plan.delegates[1].processed = schema.BackendDelegateDataReference(1, 1)
    data = to_bytes(PteImage((plan,), delegate_blobs=(b"good", b"bad")))
    with pytest.raises(FormatError, match="bad blob"):
        _ = load(data, runtime)["forward"]
    assert runtime.destroyed == [1]


def test_an_input_of_a_delegate_may_be_a_constant(runtime: Doubling) -> None:
    values = [handmade.tensor([5], constant=1), handmade.tensor([5], 0)]
    place = schema.BackendDelegateDataReference(1, 0)
    delegates = [schema.BackendDelegate("Test", place, [])]
    plan = handmade.plan(values, [], [1], [schema.DelegateCall(0, [0, 1])], delegates=delegates)
    data = to_bytes(PteImage((plan,), constants=(handmade.WEIGHT,), delegate_blobs=(b"blob",)))
    assert torch.equal(load(data, runtime)["forward"](), 2 * handmade.WEIGHT)


def test_a_delegate_sees_the_value_that_was_moved_in_this_call(runtime: Doubling) -> None:
    values = [handmade.tensor([5], offset) for offset in (0, 64, 128)]
    delegates = [schema.BackendDelegate("Test", schema.BackendDelegateDataReference(1, 0), [])]
    calls = [schema.MoveCall(0, 1), schema.DelegateCall(0, [1, 2])]
    plan = handmade.plan(values, [0], [2], calls, delegates=delegates, non_const_buffer_sizes=[0, 512])
    method = load(to_bytes(PteImage((plan,), delegate_blobs=(b"blob",))), runtime)["forward"]
    assert torch.equal(method(X), 2 * X)
    assert torch.equal(method(X + 1), 2 * X + 2)
