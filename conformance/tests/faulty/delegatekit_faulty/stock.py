"""Faults of files: the runtime in Python knows facts that are not in the blob, so the stock runtime is wrong.

Each has the sound blob in a compile spec, which only the runtime in Python reads, and a changed one for the device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from delegatekit_api import CompileSpec, DelegatePayload, PreprocessResult

from .fault import Wrapped, fault

_SPEC = "sound"
#: Changes the graph of a blob (`schema.XNNGraph`) in place.
Change: TypeAlias = "Callable[[Any], None]"


def on_the_device(*select: str) -> Callable[[Change], Change]:
    """Register a change of the graph that only the runtime of the device sees."""

    def register(change: Change) -> Change:
        def part(sound: Any, name: str) -> Any:
            return _Runtime(sound) if name == "runtime" else _compiler(sound, lambda blob: _edited(blob, change))

        part.__name__, part.__doc__ = change.__name__, change.__doc__
        fault("preprocess and runtime", *select, native=True)(part)
        return change

    return register


def _compiler(sound: Any, change: Callable[[bytes], bytes]) -> Any:
    def preprocess(partition: Any, options: Any) -> PreprocessResult:
        result: PreprocessResult = sound(partition=partition, options=options)
        blob = bytes(result.blob)  # type: ignore[arg-type]
        other = change(blob)
        size = max(len(blob), len(other))
        spec = CompileSpec(_SPEC, blob.ljust(size, b"\0"))
        return replace(result, blob=other.ljust(size, b"\0"), compile_specs=(*result.compile_specs, spec))

    return preprocess


class _Runtime(Wrapped):
    def init(self, payload: DelegatePayload) -> Any:
        blob = bytes(payload.blob)
        sound = next(spec.value for spec in payload.compile_specs if spec.key == _SPEC)

        def as_program(keys: Any) -> bytes:
            return payload.as_program(keys).replace(blob, sound)

        return self._sound.init(replace(payload, blob=memoryview(sound), as_program=as_program))


def _edited(blob: bytes, change: Change) -> bytes:
    from delegatekit_toolkit import flatbuffer as fb
    from delegatekit_xnnpack.blob.envelope import ALIGNMENT, FLATBUFFER_OFFSET, HEADER, IDENTIFIERS, MAGIC
    from delegatekit_xnnpack.blob.reader import parse

    graph = parse(blob)
    change(graph)
    flatbuffer = fb.serialize(graph, IDENTIFIERS[1])
    body = flatbuffer + bytes(-len(flatbuffer) % ALIGNMENT)
    header = HEADER.pack(MAGIC, HEADER.size, FLATBUFFER_OFFSET, len(flatbuffer), FLATBUFFER_OFFSET + len(body), 0)
    return header.ljust(FLATBUFFER_OFFSET, b"\0") + body


@fault("preprocess", "contract/programs-that-look-alike", native=True)
def _keys_look_at_the_beginning(sound: Any) -> Any:
    """Keys are made of the first KiB of a constant: two that differ in a late element are one in the file."""

    def preprocess(partition: Any, options: Any) -> PreprocessResult:
        result: PreprocessResult = sound(partition=partition, options=options)
        keys = {item.key: _short_key(item.data) for item in result.named_data}

        def rename(graph: Any) -> None:
            for entry in graph.constant_data:
                entry.named_key = keys.get(entry.named_key, entry.named_key)

        data = {keys[item.key]: replace(item, key=keys[item.key]) for item in reversed(result.named_data)}
        blob = _edited(bytes(result.blob), rename)  # type: ignore[arg-type]
        return replace(result, blob=blob, named_data=tuple(data.values()))

    return preprocess


def _short_key(data: Any) -> str:
    return hashlib.sha256(data.detach().contiguous().reshape(-1).numpy().tobytes()[:1024]).hexdigest()


def _tensor(value: Any) -> Any:
    union = value.xvalue_union
    return getattr(union, "tensor_value", None) or union


def _exchange(graph: Any, ids: list[int]) -> None:
    """The first two of these values with one shape and type exchange their places among the arguments."""
    tensors = {_tensor(value).id_out: _tensor(value) for value in graph.xvalues}
    found = [tensors[number] for number in ids]
    for index, first in enumerate(found):
        for second in found[index + 1 :]:
            if (first.datatype, list(first.dims or [])) == (second.datatype, list(second.dims or [])):
                first.external_id, second.external_id = second.external_id, first.external_id
                return


@on_the_device("operators/aten.sub.Tensor/float32")
def _the_device_has_other_inputs(graph: Any) -> None:
    """In the stock runtime, two inputs of one shape change places."""
    _exchange(graph, graph.input_ids)


@on_the_device("graphs/random*", "patterns/*")
def _the_device_has_other_outputs(graph: Any) -> None:
    """In the stock runtime, two outputs of one shape change places."""
    _exchange(graph, graph.output_ids)


@on_the_device("operators/aten.relu.default/float32")
def _bounds_are_kept_in_python(graph: Any) -> None:
    """The bounds of clamps are applied in Python only; the blob has none."""
    for node in graph.xnodes:
        if node.output_min_max is not None:
            node.output_min_max.output_min, node.output_min_max.output_max = float("-inf"), float("inf")


@on_the_device("operators/aten.add.Tensor/float32")
def _the_device_misses_an_argument(graph: Any) -> None:
    """The blob states one argument fewer than the delegate is called with, which the stock runtime refuses."""
    graph.num_externs -= 1


@on_the_device("operators/aten.addmm.default/float32")
def _keys_are_translated_in_python(graph: Any) -> None:
    """The blob asks for its constants by names that only the runtime in Python can translate."""
    for entry in graph.constant_data:
        if entry.named_key:
            entry.named_key = entry.named_key[::-1]


@on_the_device("operators/aten.view_copy.default/float32", "operators/aten.view.default/float32", "patterns/*")
def _shapes_are_corrected_in_python(graph: Any) -> None:
    """The blob's reshapes have their sizes in reversed order."""
    for node in graph.xnodes:
        if type(node.xnode_union).__name__ == "StaticReshape":
            node.xnode_union.new_shape = list(reversed(node.xnode_union.new_shape))


@on_the_device("operators/aten.add.Tensor/float32")
def _the_device_gets_a_number_too_large(graph: Any) -> None:
    """A node of the blob names a value that does not exist."""
    for node in graph.xnodes:
        for name in ("input1_id", "input_id"):
            if hasattr(node.xnode_union, name):
                setattr(node.xnode_union, name, 4000)


@on_the_device("operators/aten.addmm.default/float32")
def _constants_end_too_early(graph: Any) -> None:
    """Constants are 2**24 times as long as their data: the stock runtime reads past the end of the file's memory."""
    for value in graph.xvalues:
        tensor = _tensor(value)
        if tensor.constant_buffer_idx and tensor.dims:
            tensor.dims = [tensor.dims[0] * 2**12, *tensor.dims[1:]]


@on_the_device("operators/aten.addmm.default/float32")
def _flags_are_kept_in_python(graph: Any) -> None:
    """The flags of nodes (transposed weights, kept dims, aligned corners) are missing in the blob."""
    for node in graph.xnodes:
        if getattr(node.xnode_union, "flags", 0):
            node.xnode_union.flags = 0


@on_the_device("operators/aten.convolution.default/float32")
def _padding_is_kept_in_python(graph: Any) -> None:
    """Convolutions of the blob have no padding on the left: their results are narrower than declared."""
    for node in graph.xnodes:
        if hasattr(node.xnode_union, "padding_left"):
            node.xnode_union.padding_left = 0


@on_the_device("quantized/*")
def _scales_are_kept_in_python(graph: Any) -> None:
    """The scales of int8 values are twice as large in the blob."""
    for value in graph.xvalues:
        parameters: Any = getattr(value.xvalue_union, "quant_params", None)
        if hasattr(parameters, "zero_point"):
            parameters.scale *= 2


@on_the_device("dynamic/*")
def _the_device_has_fixed_sizes(graph: Any) -> None:
    """Reshapes of the blob have the largest sizes, where sizes change."""
    tensors = {_tensor(value).id_out: _tensor(value) for value in graph.xvalues}
    for node in graph.xnodes:
        if type(node.xnode_union).__name__ == "StaticReshape":
            node.xnode_union.new_shape = list(tensors[node.xnode_union.output_id].dims)
