"""What `inspect` says about a file: it needs neither plugins nor runtimes, and believes no damaged file."""

from __future__ import annotations

import json
from pathlib import Path

import handmade
import pytest

import delegatekit
from delegatekit.inspection import DelegateInfo, SegmentInfo, ValueInfo
from delegatekit.pte import PteImage, schema, to_bytes, write
from delegatekit_api import FormatError, NamedData

OWNER = {"method": "forward", "index": 0, "distribution": "dk-test", "version": "1.2", "api": "0.1"}
MANIFEST = {"producer": "delegatekit 9", "delegates": [OWNER]}


def delegate_image(manifest: bytes | None) -> PteImage:
    values = [handmade.tensor([2, 5], 0), handmade.tensor([2, 5], 64), handmade.tensor([10], constant=1)]
    place = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0)
    delegates = [schema.BackendDelegate("Test", place, [schema.CompileSpec("level", b"2")])]
    plan = handmade.plan(values, [0], [1], [schema.DelegateCall(0, [0, 2, 1])], delegates=delegates)
    named = (NamedData("weight", b"w" * 12),)
    if manifest is not None:
        named += (NamedData("delegatekit.manifest", manifest),)
    return PteImage((plan,), (b"c" * 40,), delegate_blobs=(b"blob",), named_data=named)


def test_methods_operators_and_memory_are_listed() -> None:
    found = delegatekit.inspect(handmade.add_program())
    (method,) = found.methods
    assert method.inputs == method.outputs == (ValueInfo("float32[5]", 20),)
    assert method.operators == {"aten::add.out": 1}
    assert (method.instructions, method.memory, method.constants, method.delegates) == (1, (128,), 20, ())
    assert found.segments == (SegmentInfo(0, "constants", 20),)
    assert (found.size, found.producer) == (len(handmade.add_program()), "unknown")


def test_a_delegate_is_listed_with_its_owner() -> None:
    found = delegatekit.inspect(to_bytes(delegate_image(json.dumps(MANIFEST).encode())))
    assert found.producer == "delegatekit 9"
    assert found.methods[0].delegates == (DelegateInfo("Test", 4, ("level",), "dk-test", "1.2", "0.1"),)
    assert [segment.kind for segment in found.segments] == [
        "constants",
        "blob of Test",
        "named data weight",
        "named data delegatekit.manifest",
    ]
    assert found.named_data["weight"] == 12


@pytest.mark.parametrize(
    "manifest",
    [None, b"", b"no json", b"[1]", b"\xff", b'{"delegates": 3}', b'{"delegates": [3, {"index": []}]}', b"[" * 100_000],
)
def test_a_missing_or_damaged_manifest_leaves_owners_unknown(manifest: bytes | None) -> None:
    found = delegatekit.inspect(to_bytes(delegate_image(manifest)))
    assert found.methods[0].delegates == (DelegateInfo("Test", 4, ("level",), "unknown", "unknown", "unknown"),)


def test_numbers_and_all_element_types_have_readable_names() -> None:
    types = (schema.ScalarType.BYTE, schema.ScalarType.BFLOAT16, schema.ScalarType.BOOL, schema.ScalarType.QINT8)
    values = [schema.EValue(schema.Int(3))]
    values += [schema.EValue(schema.Tensor(code, sizes=[1], dim_order=b"\0")) for code in types]
    plan = handmade.plan(values, list(range(5)), [], [])
    (method,) = delegatekit.inspect(to_bytes(PteImage((plan,)))).methods
    assert [value.text for value in method.inputs] == ["Int(3)", "uint8[1]", "bfloat16[1]", "bool[1]", "qint8[1]"]


def test_a_path_and_its_bytes_say_the_same(tmp_path: Path) -> None:
    image = delegate_image(None)
    write(image, tmp_path / "model.pte")
    assert delegatekit.inspect(tmp_path / "model.pte") == delegatekit.inspect(to_bytes(image))


def test_the_text_names_what_a_user_asks_for() -> None:
    text = str(delegatekit.inspect(to_bytes(delegate_image(json.dumps(MANIFEST).encode()))))
    for words in ("written by delegatekit 9", "method forward", "float32[2, 5]", "made by dk-test 1.2 (API 0.1)"):
        assert words in text


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(FormatError, match="cut off"):
        delegatekit.inspect(handmade.add_program()[:-1])
