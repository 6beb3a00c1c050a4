"""More about handles: threads that take turns, memory that is shared or barely aligned, and calls after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from delegatekit_api import DelegateKitError, DelegatePayload, DelegateRuntime

from ...context import Context
from ...recipe import Recipe, Ref, TensorRecipe
from ..base import Broken, NotApplicable
from ..specimens import Sample, lower, recipe_of, runs, same, samples, take_down, tensor_of
from .rules import Rules
from .runtime import expect, handle_of, run, runtime_of, some
from .separate import in_thread

RULES = Rules()

#: No page is larger: memory is not aligned better than this on purpose.
_LARGEST_ALIGNMENT = 4096


@RULES.add
def handles_change_threads(context: Context) -> str:
    """A handle made in one thread is used in a second and a third, and destroyed in a fourth, all one after another."""
    runtime = runtime_of(context)
    for item in some(context):
        handle = _elsewhere(item, "init", partial(runtime.init, item.payload))
        for _ in range(2):
            outputs = _elsewhere(item, "execute", partial(run, runtime, handle, item))
            expect(outputs, item, "in another thread than the one that made the handle")
        expect(run(runtime, handle, item), item, "in the main thread, with a handle that another one made")
        _elsewhere(item, "destroy", partial(runtime.destroy, handle))
    return ", ".join(item.name for item in some(context))


def _elsewhere(item: Sample, what: str, action: Callable[[], Any]) -> Any:
    """The result of an action in a thread of its own. Raises Broken if that raises."""

    def without_gradients() -> Any:
        with torch.no_grad():
            return action()

    result, error = in_thread(without_gradients)
    if error is not None:
        raise Broken(f"{item.name}: {what} in another thread raises {type(error).__name__}: {error}") from error
    return result


@RULES.add
def second_destroy_later(context: Context) -> str | None:
    """Destroying a handle a second time leaves newer handles alone."""
    runtime = runtime_of(context)
    for item in some(context):
        first = runtime.init(item.payload)
        runtime.destroy(first)
        later = [runtime.init(item.payload) for _ in range(3)]
        runtime.destroy(first)
        for handle in later:
            try:
                outputs = run(runtime, handle, item)
            except DelegateKitError as error:
                raise Broken(
                    f"{item.name}: destroying a handle twice ends another, made in between: {error}"
                ) from error
            expect(outputs, item, "after an older handle was destroyed twice")
            runtime.destroy(handle)
    return None


@RULES.add
def inputs_that_share_memory(context: Context) -> str:
    """Two inputs of one shape and dtype may be the same tensor."""
    runtime = runtime_of(context)
    tried = 0
    for item in samples(context):
        kinds = {(tuple(tensor.shape), tensor.dtype) for tensor in item.inputs}
        if len(item.inputs) < 2 or len(kinds) > 1:
            continue
        with handle_of(runtime, item.payload) as handle:
            first = item.inputs[0]
            apart, together = item.blank("zero"), item.blank("zero")
            runtime.execute(handle, [first.clone() for _ in item.inputs], apart)
            one = first.clone()
            runtime.execute(handle, [one for _ in item.inputs], together)
        wrong = same(together, apart)
        if wrong:
            raise Broken(f"{item.name}: with one tensor as every input, {wrong}")
        tried += 1
    if not tried:
        raise NotApplicable("no delegate has two inputs of one kind")
    return f"{tried} delegates"


@RULES.add
def results_stay(context: Context) -> str:
    """Later calls do not change the outputs of earlier ones."""
    runtime = runtime_of(context)
    for item in samples(context):
        with handle_of(runtime, item.payload) as handle:
            first = run(runtime, handle, item)
            other = [tensor.flip(tuple(range(tensor.dim()))).contiguous() for tensor in item.inputs]
            runtime.execute(handle, other, item.blank())
            expect(first, item, "after another call, in the outputs of the one before")
    return f"{len(samples(context))} delegates"


@RULES.add
def nan_passes(context: Context) -> str:
    """A call with NaN or infinities leaves no state for the next."""
    runtime = runtime_of(context)
    tried = 0
    for item in samples(context):
        if not any(tensor.is_floating_point() for tensor in item.inputs):
            continue
        with handle_of(runtime, item.payload) as handle:
            for value in (float("nan"), float("inf")):
                inputs = [
                    torch.full_like(tensor, value) if tensor.is_floating_point() else tensor.clone()
                    for tensor in item.inputs
                ]
                runtime.execute(handle, inputs, item.blank())
                expect(run(runtime, handle, item), item, f"in the call after one with {value}")
        tried += 1
    if not tried:
        raise NotApplicable("no delegate has inputs of floating point")
    return f"{tried} delegates"


@RULES.add
def after_a_refusal(context: Context) -> str:
    """After a refused blob, valid ones load as before."""
    runtime = runtime_of(context)
    for item in some(context):
        for _ in range(2):
            _try(
                runtime, replace(item.payload, blob=memoryview(bytes(item.payload.blob)[: len(item.payload.blob) // 2]))
            )
            try:
                with handle_of(runtime, item.payload) as handle:
                    expect(run(runtime, handle, item), item, "after another blob was refused")
            except DelegateKitError as error:
                raise Broken(f"{item.name}: after another blob was refused, a sound one is, too: {error}") from error
    return ", ".join(item.name for item in some(context))


def _try(runtime: DelegateRuntime, payload: DelegatePayload) -> None:
    """Load an invalid blob; another rule checks that it is refused."""
    try:
        runtime.destroy(runtime.init(payload))
    except Exception:
        return


@RULES.add
def named_data_anywhere(context: Context) -> str:
    """Named data may lie at any address with the alignment that the backend requested, and no more."""
    runtime = runtime_of(context)
    tried = 0
    for item in samples(context):
        if not item.keys:
            continue
        alignments = item.alignments
        views = {key: _placed(bytes(data), alignments.get(key, 1)) for key, data in item.payload.named_data.items()}
        try:
            with handle_of(runtime, replace(item.payload, named_data=views)) as handle:
                expect(run(runtime, handle, item), item, "with named data that is aligned as the backend asked for")
        except DelegateKitError as error:
            raise Broken(f"{item.name}: named data that is aligned as the backend asked for: {error}") from error
        tried += 1
    if not tried:
        raise NotApplicable("the blobs need no named data")
    return f"{tried} delegates"


def _placed(data: bytes, alignment: int) -> memoryview:
    """The bytes at an address that is a multiple of `alignment`, but not of twice as much."""
    alignment = min(alignment, _LARGEST_ALIGNMENT)
    memory = torch.empty(len(data) + 4 * alignment, dtype=torch.uint8)
    start = -memory.data_ptr() % (2 * alignment) + alignment
    memory[start : start + len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    content: Any = memory.numpy()
    return memoryview(content)[start : start + len(data)].toreadonly()


@RULES.add
def available_in_threads(context: Context) -> str | None:
    """Runtimes may be made, and asked whether they are available, in any thread."""
    backend = runs(context)
    answer, error = in_thread(lambda: backend.create_runtime().is_available())
    if error is not None:
        raise Broken(f"in another thread, is_available raises {type(error).__name__}: {error}")
    if not answer.available:
        raise Broken(f"in another thread, the runtime is not available: {answer.reason}")
    return None


#: Programs that read or write at places that the caller gives. Of these, 5 is one too many.
_PLACES = TensorRecipe((4,), "int64", ("integers", 0, 4), seed=1)
_INDEXED: Mapping[str, Recipe] = {
    "embedding": recipe_of(
        {"x": tensor_of(5, 6, constant=True), "i": _PLACES}, ("e", "aten.embedding.default", Ref("x"), Ref("i"))
    ),
    "index_select": recipe_of(
        {"x": tensor_of(5, 6), "i": _PLACES}, ("s", "aten.index_select.default", Ref("x"), 0, Ref("i"))
    ),
    "index": recipe_of({"x": tensor_of(5, 6), "i": _PLACES}, ("s", "aten.index.Tensor", Ref("x"), (Ref("i"),))),
    "gather": recipe_of(
        {"x": tensor_of(5, 6), "i": replace(_PLACES, shape=(4, 6))},
        ("g", "aten.gather.default", Ref("x"), 0, Ref("i")),
    ),
}


@RULES.add
def indices_out_of_range(context: Context) -> str:
    """A call with an index that is one too large, whatever its result, spoils no later call of the same handle."""
    runtime = runtime_of(context)
    tried = []
    for name, recipe in _INDEXED.items():
        try:
            items = take_down(name, recipe, lower(recipe, context), context)
        except DelegateKitError:
            continue  # the room operators reports it
        for item in items:
            wrong = [x if x.is_floating_point() else torch.full_like(x, 5) for x in item.inputs]
            if all(x.is_floating_point() for x in item.inputs):
                continue
            with handle_of(runtime, item.payload) as handle:
                for _ in range(2):
                    expect(run(runtime, handle, item), item, "before a call with an index that is too large")
                    with suppress(Exception):
                        runtime.execute(handle, wrong, item.blank())
                    expect(run(runtime, handle, item), item, "after a call with an index that is too large")
            tried.append(name)
    if not tried:
        raise NotApplicable("the backend takes no operator with indices")
    return ", ".join(dict.fromkeys(tried))
