"""Tests of `inspect`: it needs neither plugins nor runtimes, and trusts no damaged file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch

import delegatekit
from delegatekit.pte import Datum, PtdImage, PteImage, ptd_to_bytes, schema, to_bytes, write
from delegatekit.pte.ptd_schema import TensorLayout
from delegatekit_api import FormatError, NamedData
from delegatekit_tools.inspection.inspection import DelegateInfo, KeyInfo, SegmentInfo, ValueInfo
from delegatekit_tools.releases import installed_version

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


def test_sizes_that_change_are_shown_as_bounds() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.sin(x) + y

    inputs = (torch.ones(4, 3), torch.ones(3))
    shapes = {"x": {0: torch.export.Dim("n", max=8)}, "y": None}
    program = delegatekit.lower(Model(), inputs, backends=[], dynamic_shapes=shapes)
    (method,) = delegatekit.inspect(program.buffer).methods
    assert [value.text for value in method.inputs] == ["float32[<=8, 3]", "float32[3]"]
    assert [value.text for value in method.outputs] == ["float32[<=8, <=3]"]


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


def _changing_image(axes: Any) -> PteImage:
    """One input of at most 2 x 5, whose changing axes the manifest declares as `axes`."""
    tensor = schema.Tensor(6, sizes=[2, 5], dim_order=b"\0\1", shape_dynamism=schema.TensorShapeDynamism.DYNAMIC_BOUND)
    plan = handmade.plan([schema.EValue(tensor)], [0], [], [])
    manifest = json.dumps({"axes": axes}).encode()
    return PteImage((plan,), named_data=(NamedData("delegatekit.manifest", manifest),))


AXIS = {"name": "n", "least": 0, "most": 2, "times": 1, "plus": 0}


def test_the_manifest_says_which_sizes_of_an_input_change() -> None:
    (method,) = delegatekit.inspect(to_bytes(_changing_image({"forward": [[AXIS, 5]]}))).methods
    assert method.inputs[0].text == "float32[<=2, 5]"


@pytest.mark.parametrize(
    "axes",
    [
        *(3, [], {"forward": 3}, {"forward": []}, {"forward": [None]}, {"forward": [3]}, {"forward": [[5]]}),
        *({"forward": [item]} for item in ([AXIS, 6], [AXIS, 5, 5], [{**AXIS, "most": 3}, 5], ["2", 5], [True, 5])),
        *({"forward": [[{**AXIS, key: value}, 5]]} for key, value in (("times", 0), ("least", None), ("plus", 1.5))),
        *({"forward": [item, item]} for item in (None, [AXIS, 5])),
    ],
    ids=repr,
)
def test_axes_that_do_not_fit_the_file_say_nothing(axes: Any) -> None:
    image = to_bytes(_changing_image(axes))
    (method,) = delegatekit.inspect(image).methods
    assert method.inputs[0].text == "float32[<=2, <=5]"
    delegatekit.load(image)["forward"](torch.ones(1, 4))


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


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (None, " (API 0.1), of which no release is installed here\n"),
        ("1.2", " (API 0.1)\n"),
        ("1.3", " (API 0.1), of which 1.3 is installed here\n"),
    ],
)
def test_the_text_says_which_release_of_the_maker_is_here(version: str | None, told: str, install_plugin: Any) -> None:
    if version is not None:
        install_plugin("test", distribution="dk-test", version=version)
    found = delegatekit.inspect(to_bytes(delegate_image(json.dumps(MANIFEST).encode())))
    assert f"made by dk-test 1.2{told}" in str(found)
    assert found.methods[0].delegates[0].installed == version


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "\0", "unknown"])
def test_a_name_from_a_file_that_is_no_distribution_is_not_installed(name: str) -> None:
    assert installed_version(name) is None


def test_a_damaged_file_is_refused() -> None:
    with pytest.raises(FormatError, match="cut off"):
        delegatekit.inspect(handmade.add_program()[:-1])


def external_image(manifest: bytes) -> PteImage:
    values = [handmade.tensor([2, 5], 0), handmade.tensor([2, 5], 64)]
    info = schema.ExtraTensorInfo(fully_qualified_name="layer.weight", location=1)
    outside = schema.Tensor(scalar_type=6, sizes=[3, 5], dim_order=b"\0\1", data_buffer_idx=1, extra_tensor_info=info)
    plan = handmade.plan([*values, schema.EValue(outside)], [0], [1], [])
    return PteImage((plan,), (b"c" * 40,), named_data=(NamedData("delegatekit.manifest", manifest),))


def test_what_is_in_data_files_is_listed() -> None:
    found = delegatekit.inspect(to_bytes(external_image(b'{"data_files": {"": ["0123"], "big": [], "x": 3}}')))
    assert found.external == (
        KeyInfo("layer.weight", "float32[3, 5]", 60),
        KeyInfo("0123", "data of a backend", None),
    )
    assert found.data_files == ("", "big")
    assert found.methods[0].constants == 0
    text = str(found)
    assert "outside: layer.weight: float32[3, 5], 60 B" in text
    assert "written with the data files: the .ptd of this file's name, big.ptd" in text


def test_segments_and_weights_outside_are_folded() -> None:
    named = tuple(NamedData(f"{number:032x}", bytes(100 + number)) for number in range(40))
    keys = b", ".join(b'"key %d"' % number for number in range(30))
    image = replace(external_image(b'{"data_files": {"": [%b]}}' % keys), named_data=())
    manifest = NamedData("delegatekit.manifest", b'{"data_files": {"": [%b]}}' % keys)
    found = delegatekit.inspect(to_bytes(replace(image, named_data=(manifest, *named))))
    folded, whole = found.text(), found.text(every=True)
    assert [item.kind.split()[0] for item in found.segments] == ["constants", *["named"] * 41]
    constants, size = found.segments[0].size, sum(item.size for item in found.segments[1:])
    assert f"42 segments: constants {constants} B, named data {size / 1024:.1f} KiB (41)" in folded
    assert folded.count("outside: ") == 11 and "outside: 21 more (`inspect --all` shows them)" in folded
    assert whole.count("\nsegment ") == 42 and whole.count("outside: ") == 31


def test_a_manifest_that_is_far_too_long_is_not_read() -> None:
    assert delegatekit.inspect(to_bytes(external_image(b"{" + b" " * (5 << 20) + b'"producer": "x"}'))).producer == (
        "unknown"
    )


def test_a_data_file_is_described_with_its_keys_types_and_sizes() -> None:
    layout = TensorLayout(15, [2, 3], b"\0\1")
    data = ptd_to_bytes(PtdImage((Datum("layer.weight", bytes(12), layout), Datum("0123", b"blob"))))
    found = delegatekit.inspect_data(data)
    assert found.size == len(data)
    assert found.keys == (KeyInfo("layer.weight", "bfloat16[2, 3]", 12), KeyInfo("0123", "data of a backend", 4))
    assert "layer.weight: bfloat16[2, 3], 12 B" in str(found)
    with pytest.raises(FormatError, match="cut off"):
        delegatekit.inspect_data(data[:-1])
