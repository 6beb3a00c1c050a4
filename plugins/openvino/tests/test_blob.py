"""Blobs: the same bytes in every process, damage, and what is inside."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch

from delegatekit_api import CompileSpec, DelegatePayload, FormatError, TensorSpec
from delegatekit_conformance import testkit
from delegatekit_openvino.blob.layout import _HEADER, _masked, read_layout
from delegatekit_openvino.blob.operators import operators
from delegatekit_openvino.blob.seal import _SEAL, check
from delegatekit_openvino.runtime import OpenVINORuntime

_PROGRAM = """
import hashlib, sys, torch
from delegatekit_openvino.blob.library import openvino
for _ in range(int(sys.argv[1])):
    openvino().opset15.parameter([1], openvino().Type.f32)
from delegatekit_conformance import testkit
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4))
lowered = testkit.lower(net, torch.ones(1, 3, 8, 8), backend="openvino")
print(hashlib.sha256(lowered.delegate.blob).hexdigest())
"""


@pytest.fixture(scope="module")
def lowered() -> testkit.Lowered:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    return testkit.lower(net, torch.randn(2, 4), backend="openvino")


def _payload(lowered: testkit.Lowered, blob: bytes | None = None) -> DelegatePayload:
    delegate = lowered.delegate
    specs = tuple(CompileSpec(key, value) for key, value in delegate.compile_specs.items())
    given, made = TensorSpec("float32", (2, 4)), TensorSpec("float32", (2, 3))
    found = memoryview(delegate.blob if blob is None else blob)
    return DelegatePayload("OpenvinoBackend", found, specs, (given,), (made,), {}, bytes)


def test_bytes_do_not_depend_on_what_the_process_did_before() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, count], check=True, capture_output=True, text=True
        ).stdout.split()[-1]
        for count in ("0", "7")
    }
    assert len(found) == 1


def test_every_changed_bit_is_refused(lowered: testkit.Lowered) -> None:
    blob = lowered.delegate.blob
    for place in range(0, len(blob), 97):
        damaged = bytearray(blob)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(FormatError, match="checksum"):
            OpenVINORuntime().init(_payload(lowered, bytes(damaged)))


def test_changed_settings_are_refused(lowered: testkit.Lowered) -> None:
    payload = _payload(lowered)
    for spec in payload.compile_specs:
        value = bytes([spec.value[0] ^ 1]) + spec.value[1:]
        others = [other for other in payload.compile_specs if other is not spec]
        changed = DelegatePayload(
            payload.delegate_id,
            payload.blob,
            (*others, CompileSpec(spec.key, value)),
            payload.inputs,
            payload.outputs,
            {},
            bytes,
        )
        with pytest.raises(FormatError):
            OpenVINORuntime().init(changed)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"threads": float("inf")}, "Infinity"),
        ({"threads": 1.5}, "threads is 1.5, not a whole number"),
        ({"precision": "x"}, "a precision 'x', which is not known"),
        ({"openvino": '1"; touch /tmp/owned; "'}, "of OpenVINO, which is none"),
        ({"signature": {"inputs": [{"dtype": "float32", "shape": [1, float("inf")]}], "outputs": []}}, "Infinity"),
    ],
)
def test_settings_that_nobody_writes_are_refused(
    lowered: testkit.Lowered, settings: dict[str, object], words: str
) -> None:
    """With a fitting checksum."""
    specs = lowered.delegate.compile_specs
    text = json.dumps(json.loads(specs["delegatekit.settings"]) | settings).encode()
    blob = lowered.delegate.blob
    made = {"device": b"CPU", "delegatekit.settings": text}
    made["delegatekit.seal"] = _SEAL.header(blob) + _SEAL.header(b"CPU\0" + text)
    with pytest.raises(FormatError, match=words):
        check(memoryview(blob), [CompileSpec(key, value) for key, value in made.items()])


def test_a_blob_without_a_checksum_of_ours_runs(lowered: testkit.Lowered) -> None:
    """As stock ExecuTorch's compiler writes it."""
    payload = _payload(lowered)
    payload = DelegatePayload(
        payload.delegate_id, payload.blob, (CompileSpec("device", b"CPU"),), payload.inputs, payload.outputs, {}, bytes
    )
    runtime = OpenVINORuntime()
    handle = runtime.init(payload)
    output = torch.empty(2, 3)
    runtime.execute(handle, lowered.inputs, [output])
    torch.testing.assert_close(output, lowered.eager()[0])


def test_a_blob_that_ends_too_early_is_refused(lowered: testkit.Lowered) -> None:
    for size in (0, 20, 60, len(lowered.delegate.blob) - 1):
        with pytest.raises(FormatError):
            read_layout(lowered.delegate.blob[:size])


def test_operators_of_a_blob_are_told(lowered: testkit.Lowered) -> None:
    found = operators(memoryview(lowered.delegate.blob), ())
    assert [item.name for item in found] == ["FullyConnected", "ReLU"]
    assert found[-1].facts["result"] == "fp32[2, 3]"
    assert found[0].makes[0] == found[1].reads[0]


def test_operators_that_are_computed_as_one_are_told_one_by_one() -> None:
    lowered = testkit.lower(lambda x: (torch.sin(x) * 2 + torch.abs(x)).tanh(), torch.randn(3, 4), backend="openvino")
    found = {item.name: item for item in operators(memoryview(lowered.delegate.blob), ())}
    assert list(found) == ["Sin", "Multiply", "Abs", "Add", "Tanh"]
    assert found["Multiply"].reads[0] == found["Sin"].makes[0]
    assert set(found["Add"].reads) == {found["Multiply"].makes[0], found["Abs"].makes[0]}
    assert found["Tanh"].reads == found["Add"].makes


_CHAIN = "".join(
    f"""<layer id="{at}" type="Subgraph"><port_map><input external_port_id="0" internal_layer_id="0"/>
    <output external_port_id="1" internal_layer_id="1"/></port_map><body><layers/><edges><edge from-layer="0"
    from-port="0" to-layer="1" to-port="0"/></edges></body></layer>"""
    for at in range(3000)
)
_LINKS = "".join(f'<edge from-layer="{at}" from-port="1" to-layer="{at + 1}" to-port="0"/>' for at in range(3000))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ('<layer id="1" name="a" type="Subgraph"><port_map></port_map><body></body>' * 400, "damaged model"),
        ('<layer id="1" name="a" type="b">' * 20000, "damaged model"),
        ("<a>" * 50000 + "</a>" * 50000, ""),
        ('<!DOCTYPE a [<!ENTITY b "c">]><net>&b;</net>', "type of document"),
        (f'<net><edges><edge from-layer="0" to-port="{"1" * 5000}"/></edges></net>', "which is no number"),
        ('<net><layers><layer id="\u0661"/></layers></net>', "which is no number"),
        (f"<net><layers>{_CHAIN}</layers><edges>{_LINKS}</edges></net>", ""),
    ],
    ids=["open subgraphs", "open layers", "nested", "entities", "a long number", "another digit", "a chain"],
)
def test_models_of_any_text_are_read_or_refused_soon(lowered: testkit.Lowered, model: str, words: str) -> None:
    blob, text = lowered.delegate.blob, _masked(model.encode())
    fields = list(_HEADER.unpack_from(blob))
    fields[5] = len(text)
    made = memoryview(b"".join((_HEADER.pack(*fields), blob[_HEADER.size : fields[4]], text)))
    start = time.process_time()
    if words:
        with pytest.raises(FormatError, match=words):
            operators(made, (CompileSpec("device", b"CPU"),))
    else:
        assert not operators(made, (CompileSpec("device", b"CPU"),))
    assert time.process_time() - start < 2
