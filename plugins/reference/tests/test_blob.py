"""The blob: written blobs are read back, and nothing else is accepted."""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import replace

import pytest

from delegatekit_api import FormatError
from delegatekit_reference.blob import SEAL, read_blob, write_blob
from delegatekit_reference.ir.graph import Constant, Graph, Named, Ref, Step
from delegatekit_toolkit.signature import Range, TensorType

GRAPH = Graph(
    inputs=(TensorType("float32", (2, Range(0, 8, 0))), TensorType("bool", ())),
    constants=(Constant("int64", (3, 0), ""), Constant("bfloat16", (2,), "0" * 64)),
    steps=(
        Step("aten.add.Tensor", (Ref(0), Ref(0)), {"alpha": 2}),
        Step("aten.clamp.default", (Ref(4), -math.inf, math.inf)),
        Step(
            "aten._to_copy.default", (Ref(5),), {"dtype": Named("dtype", "float16"), "device": Named("device", "cpu")}
        ),
        Step("aten.sym_size.int", (Ref(0), 1)),
        Step("operator.mul", (Ref(7), 3)),
        Step("aten.full.default", ((2, Ref(8)), -0.0), {"layout": Named("layout", "strided"), "pin_memory": False}),
        Step("aten.index.Tensor", (Ref(0), (None, Ref(2)))),
        Step("aten.div.Tensor_mode", (Ref(0), 1e-300), {"rounding_mode": "floor"}),
    ),
    outputs=(6, 9, 6),
    results=(
        TensorType("float16", (2, Range(0, 8, 0))),
        TensorType("float32", (2, Range(0, 24, 1))),
        TensorType("float16", (2, Range(0, 8, 0))),
    ),
)


def _sealed(body: bytes, *, version: int = 1) -> bytes:
    """A blob around any bytes, with a correct checksum: a malicious file."""
    start, length = struct.pack("<8sI", SEAL.magic, version), struct.pack("<Q", len(body))
    return start + struct.pack("<I", zlib.crc32(start + length + body)) + length + body


def test_a_graph_is_read_as_it_was_written():
    blob = write_blob(GRAPH)
    assert read_blob(blob) == GRAPH
    assert write_blob(read_blob(memoryview(blob))) == blob
    # == does not distinguish these.
    read = read_blob(blob).steps
    assert math.copysign(1.0, read[5].args[1]) == -1.0
    assert [type(item) for item in (read[0].kwargs["alpha"], read[5].kwargs["pin_memory"])] == [int, bool]


def test_nan_and_whole_floats_stay_what_they_are():
    step = Step("aten.full.default", ((), math.nan, 1.0, 1e22, True))
    read = read_blob(write_blob(replace(GRAPH, steps=(step, *GRAPH.steps)[:1], outputs=(), results=()))).steps[0].args
    assert math.isnan(read[1])
    assert [(type(item), item) for item in read[2:]] == [(float, 1.0), (float, 1e22), (bool, True)]


def test_the_layout_is_as_documented():
    blob = write_blob(GRAPH)
    assert blob[:8] == b"DKREFBLB"
    assert struct.unpack_from("<I", blob, 8) == (1,)
    assert struct.unpack_from("<Q", blob, 16) == (len(blob) - 24,)
    assert struct.unpack_from("<I", blob, 12) == (zlib.crc32(blob[:12] + blob[16:]),)
    assert json.loads(blob[24:])["steps"][0] == ["aten.add.Tensor", [{"value": 0}, {"value": 0}], {"alpha": 2}]


def test_every_truncation_and_every_flipped_bit_is_refused():
    blob = write_blob(GRAPH)
    for length in range(len(blob)):
        with pytest.raises(FormatError):
            read_blob(blob[:length])
    with pytest.raises(FormatError):
        read_blob(blob + b"\0")
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            read_blob(damaged)


def test_another_version_is_named():
    with pytest.raises(FormatError, match="version 2 of the format"):
        read_blob(_sealed(write_blob(GRAPH)[SEAL.header_size :], version=2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": (Step("aten.add_.Tensor", (Ref(0), 1)),)}, "not among the backend's operators"),
        ({"steps": (Step("os.system", ("true",)),)}, "not among the backend's operators"),
        ({"steps": (Step("aten.relu.default", (Ref(4),)),)}, "reads value 4, which is not computed before it"),
        ({"steps": (Step("aten.cat.default", ((Ref(0), Ref(-1)),)),)}, "reads value -1"),
        ({"outputs": (12,), "results": GRAPH.results[:1]}, "returns value 12"),
        ({"outputs": (6,)}, "1 outputs, but 3"),
        ({"inputs": (TensorType("complex64", ()), *GRAPH.inputs[1:])}, "dtype 'complex64' is unknown"),
        ({"inputs": (TensorType("float32", (Range(3, 2, 0),)), *GRAPH.inputs[1:])}, "a size of 3 to 2"),
        ({"constants": (Constant("int8", (-1,), ""), *GRAPH.constants[1:])}, "a size of -1"),
    ],
)
def test_graphs_that_could_do_harm_are_neither_written_nor_read(change, message):
    graph = replace(GRAPH, **change)
    with pytest.raises(FormatError, match=message):
        write_blob(graph)
    # Read from a blob of another writer.
    template = json.loads(write_blob(GRAPH)[SEAL.header_size :])
    for name, items in change.items():
        if name == "steps":
            template[name] = [[step.operator, _plain(step.args), {}] for step in items]
            template["outputs"], template["results"] = [], []
        elif name in ("inputs", "results"):
            template[name] = [[item.dtype, [_size(size) for size in item.shape]] for item in items]
        elif name == "constants":
            template[name] = [[item.dtype, list(item.shape), item.key] for item in items]
        else:
            template[name] = list(items)
    with pytest.raises(FormatError, match=message):
        read_blob(_sealed(json.dumps(template).encode()))


def _plain(item):
    if isinstance(item, tuple):
        return [_plain(element) for element in item]
    return {"value": item.value} if isinstance(item, Ref) else item


def _size(size):
    return [size.low, size.high, size.symbol] if isinstance(size, Range) else size


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"{" * 1000,
        b"[" * 100_000,
        b'{"inputs":[],"inputs":[],"constants":[],"steps":[],"outputs":[],"results":[]}',
        b'{"inputs":{},"constants":[],"steps":[],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[NaN],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[1'
        + b"0" * 5000
        + b'],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[{"value":true}],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[{"value":0,"x":1}],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[{"device":"cuda"}],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[{"dtype":["x"]}],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[{"float":{}}],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[["aten.relu.default",[]]],"outputs":[],"results":[]}',
        b'{"inputs":[],"constants":[],"steps":[[["x"],[],{}]],"outputs":[],"results":[]}',
        b'{"inputs":[["float32",[1.5]]],"constants":[],"steps":[],"outputs":[],"results":[]}',
    ],
)
def test_bodies_that_are_no_graph_are_refused(body):
    with pytest.raises(FormatError):
        read_blob(_sealed(body))


@pytest.mark.parametrize("argument", [object(), [1], Named("dtype", "complex64"), Named("device", "cuda"), 1j])
def test_arguments_that_a_blob_cannot_hold_are_refused(argument):
    graph = replace(GRAPH, steps=(Step("aten.relu.default", (argument,)),), outputs=(), results=())
    with pytest.raises(FormatError):
        write_blob(graph)
