"""Any invalid part of a backend's result for a partition is an error that names the part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

import delegatekit
from delegatekit.compiling.result import check_result
from delegatekit_api import CompileSpec, NamedData, PluginError, PreprocessResult
from delegatekit_api.devices import Estimate, LayerEstimate


class Unreadable:
    """An object without any readable attribute."""

    def __repr__(self) -> str:
        raise SystemExit(3)

    def __len__(self) -> int:
        raise KeyError("length")

    def __iter__(self) -> Any:
        raise MemoryError


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


def recursive() -> list[Any]:
    items: list[Any] = []
    items.append(items)
    return items


def result(blob: Any = b"blob", **more: Any) -> Any:
    return PreprocessResult(blob, **more)


def named(*fields: Any) -> Any:
    return result(named_data=(NamedData(*fields),))


#: The returned object, and the part that the error names.
WRONG = {
    "nothing": (None, "returned NoneType, not a PreprocessResult"),
    "a tuple": ((b"blob",), "returned tuple"),
    "the class": (PreprocessResult, "returned type"),
    "blob is a text": (result("blob"), r"result.blob is 'blob', not a bytes"),
    "blob is a number": (result(7), "result.blob is 7"),
    "blob is None": (result(None), "result.blob is None"),
    "blob is a tensor": (result(torch.ones(2)), "result.blob is tensor"),
    "blob is a generator": (result(part for part in [b"a"]), "result.blob is <generator"),
    "blob is unreadable": (result(Unreadable()), "result.blob is <Unreadable without a repr>"),
    "blob holds a text": (result([b"a", "b"]), r"result.blob\[1\] is 'b'"),
    "blob holds itself": (result(recursive()), r"result.blob\[0\] is \[\[...\]\]"),
    "blob is empty": (result([b"", b""]), "blob is empty"),
    "blob has no parts": (result([]), "blob is empty"),
    "blob has gaps": (result(memoryview(b"abcd")[::2]), "blob has a memoryview that is not contiguous"),
    "specs are a spec": (result(compile_specs=CompileSpec("a", b"")), "result.compile_specs is CompileSpec"),
    "a spec is a pair": (result(compile_specs=[("a", b"")]), r"result.compile_specs\[0\] is \('a', b''\)"),
    "a spec's key is bytes": (result(compile_specs=[CompileSpec(b"a", b"")]), r"compile_specs\[0\].key is b'a'"),  # type: ignore[arg-type]
    "a spec's key has no encoding": (result(compile_specs=[CompileSpec("\ud800", b"")]), "no UTF-8 encoding"),
    "a spec's value is a text": (result(compile_specs=[CompileSpec("a", "b")]), r"compile_specs\[0\].value is 'b'"),  # type: ignore[arg-type]
    "data is a dict": (result(named_data={"a": b""}), "result.named_data is {'a': b''}"),
    "a key is a number": (named(7, b""), r"named_data\[0\].key is 7"),
    "a key is empty": (named("", b"a"), "has the key ''"),
    "a key is ours": (named("delegatekit.manifest", b"{}"), "do not begin with 'delegatekit'"),
    "data is a number": (named("a", 7), r"named_data\[0\].data is 7"),
    "data has gaps": (named("a", memoryview(b"abcd")[::2]), "not contiguous"),
    "data is fake": (named("a", fake()), "cannot be written"),
    "data is on another device": (named("a", torch.empty(2, device="meta")), "cannot be written"),
    "data is sparse": (named("a", torch.eye(2).to_sparse()), "cannot be written"),
    "alignment is a flag": (named("a", b"", True), r"named_data\[0\].alignment is True"),
    "alignment is 0": (named("a", b"", 0), "alignment 0, which is not a power of two"),
    "alignment is 24": (named("a", b"", 24), "alignment 24"),
    "handles are pairs": (result(debug_handle_map=[(1, (2,))]), "result.debug_handle_map is"),
    "a handle is a text": (result(debug_handle_map={1: ("2",)}), r"debug_handle_map\[1\]\[0\] is '2'"),
    "a handle is alone": (result(debug_handle_map={1: 2}), r"debug_handle_map\[1\] is 2"),
    "a part has no name": (result(debug_handle_map={None: (2,)}), "a key of result.debug_handle_map is None"),
    "estimate is a number": (result(estimate=0.5), "result.estimate is 0.5, not an Estimate or None"),
    "latency is not finite": (result(estimate=Estimate("a", latency=float("inf"))), "estimate.latency is inf"),
    "latency is negative": (result(estimate=Estimate("a", latency=-1.0)), "negative"),
    "memory is a text": (result(estimate=Estimate("a", memory={"sram": "1 KB"})), r"memory\['sram'\] is '1 KB'"),  # type: ignore[dict-item]
    "a layer is a text": (result(estimate=Estimate("a", layers=("b",))), r"estimate.layers\[0\] is 'b'"),  # type: ignore[arg-type]
    "a layer's cycles are a text": (
        result(estimate=Estimate("a", layers=(LayerEstimate("a", "b", 0.5, "7"),))),  # type: ignore[arg-type]
        r"estimate.layers\[0\].cycles is '7'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_part_of_a_result_is_named(name: str) -> None:
    returned, message = WRONG[name]
    with pytest.raises(PluginError, match=message) as caught:
        check_result(returned, "partition 0")
    assert caught.value.where == "partition 0"
    assert len(str(caught.value)) < 500


def test_what_is_right_is_handed_on_in_tuples() -> None:
    data = NamedData("a", torch.ones(2), 32)
    spec = CompileSpec("level", b"\2")
    checked = check_result(
        result([b"a", bytearray(b"b"), memoryview(b"abcd").cast("I")], compile_specs=[spec], named_data=[data]), "here"
    )
    assert [len(part) for part in checked.blob] == [1, 1, 4]
    assert checked.compile_specs == (spec,) and checked.named_data == (data,)


BACKEND = """
from delegatekit_api import *

class All:
    def keep_operators(self): return {kept}
    def check(self, call): return {verdict}
    def propose(self, program): return {proposed}

class Odd:
    def __repr__(self): raise SystemExit(3)
    __iter__ = __len__ = __hash__ = __bool__ = __repr__

@hookimpl
def describe_backend():
    return BackendDescription("odd", "OddBackend", "delegatekit-odd", "1.2", "x")

@hookimpl
def create_partitioner(options): return All()

@hookimpl
def {hook}: return {returned}
"""

RIGHT = {
    "kept": "()",
    "verdict": "Verdict.yes()",
    "proposed": "None",
    "hook": "preprocess(partition, options)",
    "returned": "PreprocessResult(b'blob')",
}
METHODS = "preprocess_methods(methods, options)"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"returned": "PreprocessResult('blob')"}, "result.blob is 'blob'"),
        ({"returned": "PreprocessResult(Odd())"}, "result.blob is <Odd without a repr>"),
        ({"returned": "Odd()"}, "returned Odd, not a PreprocessResult"),
        ({"hook": METHODS, "returned": "Odd()"}, "what preprocess_methods returned is <Odd without a repr>"),
        ({"hook": METHODS, "returned": "{'forward': 7}"}, r"preprocess_methods returned\['forward'\] is 7"),
        ({"hook": METHODS, "returned": "{'forward': []}"}, "one result for each partition"),
        ({"hook": METHODS, "returned": "{'forward': ['blob']}"}, "returned str, not a PreprocessResult"),
        ({"kept": "'aten.relu.default'"}, "what keep_operators returned is"),
        ({"kept": "[7]"}, r"what keep_operators returned\[0\] is 7"),
        ({"kept": "Odd()"}, "what keep_operators returned is <Odd"),
        ({"verdict": "True"}, "answered True, not a Verdict"),
        ({"verdict": "Odd()"}, "answered <Odd without a repr>, not a Verdict"),
        ({"verdict": "Verdict('yes')"}, "answered Verdict.supported='yes'"),
        ({"verdict": "Verdict(False, 7)"}, "not a Verdict with a reason"),
        ({"verdict": "Verdict(True, group=('x',))"}, "not a Verdict with a reason"),
        ({"verdict": "Verdict(True, group=7)"}, "not a Verdict with a reason"),
        ({"proposed": "7"}, "what propose returned is 7"),
        ({"proposed": "[['relu']]"}, r"what propose returned\[0\]\[0\] is 'relu'"),
        ({"proposed": "[Odd()]"}, r"what propose returned\[0\] is <Odd"),
    ],
)
def test_a_wrong_answer_while_lowering_is_an_error_that_names_the_backend(
    answers: dict[str, str], message: str, install_plugin: Any
) -> None:
    install_plugin("odd", BACKEND.format(**(RIGHT | answers)))
    with pytest.raises(PluginError, match=message) as caught:
        delegatekit.lower(torch.nn.ReLU(), (torch.ones(2),), backends=["odd"])
    assert "odd" in str(caught.value)
