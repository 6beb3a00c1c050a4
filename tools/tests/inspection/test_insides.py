"""The hook `blob_operators`: called only on request, its answers are checked, its failures end no inspection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import pytest

import delegatekit
from delegatekit.plugins import get_backend
from delegatekit.pte import schema
from delegatekit_api import FormatError, PluginError
from delegatekit_api.blobs import BlobOperator
from delegatekit_tools.inspection.insides import Insides
from delegatekit_tools.model_explorer import drawings

TELLING = """
from delegatekit_api import *
from delegatekit_api.blobs import BlobOperator

@hookimpl
def describe_backend():
    return BackendDescription("acme", "Test", "delegatekit-acme", "1.2", "x", ApiVersion(2, 2))

@hookimpl
def blob_operators(blob, compile_specs, named_data, method):
    {body}
"""
TWO = (
    BlobOperator("conv", ("input 0", "weight"), ("v1",), {"kernel": "3x3", "clamp": "0 to 6"}),
    BlobOperator("add", ("v1", "input 0"), ("v2",)),
)
#: Answers that the API does not allow -> the expected message.
WRONG = {
    "return None": "blob_operators returned None",
    "return 7": "blob_operators is 7, not a list of BlobOperator",
    "return ['conv']": "blob_operators[0] is 'conv', not a BlobOperator",
    "return [BlobOperator('conv', 'x', ('y',))]": "blob_operators[0].reads is 'x', not a list of str",
    "return [BlobOperator('conv', ('x',), ('y',), {'kernel': 3})]": "blob_operators[0].facts['kernel'] is 3, not a str",
    "return [BlobOperator('a', (), ('y',)), BlobOperator('b', (), ('y',))]": "blob_operators[1] makes 'y', which is",
    "return [BlobOperator('a', (), ('y', 'y'))]": "blob_operators[0] makes 'y', which is made twice",
    "return [BlobOperator('a', ('y',), ('y',))]": "blob_operators[0] reads 'y', which is made later",
    "return [BlobOperator('a', ('z',), ('y',)), BlobOperator('b', (), ('z',))]": "blob_operators[0] reads 'z', which",
    "raise ValueError('boom')": "blob_operators failed: ValueError: boom",
    "raise SystemExit(3)": "blob_operators failed: SystemExit: 3",
}


@pytest.fixture
def install(install_plugin: Any) -> Callable[[str], Path]:
    """Installs the backend acme whose hook has this body."""
    return lambda body: install_plugin("acme", TELLING.format(body=body))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A program of one delegate with the id Test and a blob of 36 bytes, which names no owner."""
    path = tmp_path / "net.pte"
    path.write_bytes(handmade.delegate_program())
    return path


def told(file: Path) -> Insides:
    found = delegatekit.inspect(file, operators=True).methods[0].delegates[0].insides
    assert found is not None
    return found


def test_operators_are_listed(install: Any, file: Path) -> None:
    install(f"return {TWO}")
    assert told(file) == Insides(TWO)
    text = str(delegatekit.inspect(file, operators=True))
    assert "    0 conv -> v1 (kernel 3x3, clamp 0 to 6)\n    1 add -> v2\n" in text
    narrow = delegatekit.inspect(file, operators=True).text(narrow=True)
    assert "    0 conv -> v1\n        kernel 3x3\n        clamp 0 to 6\n    1 add -> v2\n" in narrow


def test_the_hook_gets_blob_specs_data_and_method(install: Any, file: Path) -> None:
    data = "{key: bytes(value) for key, value in named_data.items()}"
    install(f"return [BlobOperator(repr((bytes(blob), compile_specs, {data}, method)), (), ())]")

    def with_spec(plan: schema.ExecutionPlan) -> None:
        (delegate,) = plan.delegates or ()
        delegate.compile_specs = [schema.CompileSpec("level", b"2")]

    file.write_bytes(handmade.delegate_program(with_spec))
    (operator,) = told(file).operators
    assert operator.name == f"({b'blob' * 9!r}, [CompileSpec(key='level', value=b'2')], {{'key': b'data'}}, 'forward')"


def test_an_implementation_may_leave_arguments_out(install_plugin: Any, file: Path) -> None:
    source = TELLING.format(body="return [BlobOperator('all', (), (str(len(blob)),))]")
    install_plugin("acme", source.replace("(blob, compile_specs, named_data, method)", "(blob)"))
    assert told(file).operators == (BlobOperator("all", (), ("36",)),)


def test_without_the_flag_no_plugin_is_imported(install: Any, file: Path) -> None:
    folder = install("return []")
    (module,) = folder.glob("*.py")
    module.write_text("raise SystemExit('imported')")
    before = delegatekit.inspect(file)
    assert before.methods[0].delegates[0].insides is None and "operators not known" not in str(before)
    assert "imported" in told(file).unknown


@pytest.mark.parametrize("body", WRONG)
def test_a_wrong_answer_blames_the_plugin(body: str, install: Any, file: Path) -> None:
    install(body)
    with pytest.raises(PluginError) as caught:
        get_backend("acme").blob_operators(memoryview(b""), (), {}, "forward")
    assert WRONG[body] in caught.value.what and caught.value.where == "backend acme (delegatekit-acme 1.2)"
    unknown = told(file).unknown
    assert WRONG[body] in unknown and "\n" not in unknown
    assert f"    operators not known: {unknown}\n" in str(delegatekit.inspect(file, operators=True))


def test_a_damaged_blob_is_told_as_the_plugin_says(install: Any, file: Path) -> None:
    install("raise FormatError('has no end', where='acme blob', hint='make it\\nanew')")
    with pytest.raises(FormatError, match="acme blob: has no end"):
        get_backend("acme").blob_operators(memoryview(b""), (), {}, "forward")
    assert told(file) == Insides(unknown="acme blob: has no end -> make it anew")


def test_a_backend_without_the_hook_tells_nothing(install_plugin: Any, file: Path) -> None:
    install_plugin("acme", TELLING.partition("@hookimpl\ndef blob_operators")[0])
    assert get_backend("acme").blob_operators(memoryview(b""), (), {}, "forward") is None
    assert told(file).unknown == "backend acme (delegatekit-acme 1.2) does not list the operators in its blobs"


def test_a_plugin_that_is_not_installed_is_told(file: Path) -> None:
    assert told(file).unknown.startswith("no installed backend runs delegates of id 'Test'")


def test_model_explorer_draws_them(install: Any, file: Path) -> None:
    install(f"return {TWO}")
    method, inside = drawings(file)
    assert [box.inside for box in method.boxes if box.inside] == [inside.id]
    conv, add = inside.boxes
    assert (conv.label, conv.reads, add.label, add.reads) == ("conv", (), "add", ("0",))
    assert conv.facts == {"makes": "v1", "reads from outside": "input 0, weight", "kernel": "3x3", "clamp": "0 to 6"}


@pytest.mark.parametrize("body", ["return 7", "raise ValueError()", "return []"])
def test_model_explorer_draws_the_rest_without_them(body: str, install: Any, file: Path) -> None:
    install(body)
    (method,) = drawings(file)
    assert [box.inside for box in method.boxes] == [None] * len(method.boxes)


def test_the_command_lists_them(install: Any, file: Path, command_with: Any) -> None:
    install(f"return {TWO}")
    call = command_with("")
    assert "0 conv -> v1" in call("inspect", str(file), "--operators").out
    (delegate,) = json.loads(call("inspect", str(file), "--operators", "--json").out)["methods"][0]["delegates"]
    assert [item["name"] for item in delegate["insides"]["operators"]] == ["conv", "add"]
    assert delegate["insides"]["operators"][1]["reads"] == ["v1", "input 0"] and delegate["insides"]["unknown"] == ""
    (delegate,) = json.loads(call("inspect", str(file), "--json").out)["methods"][0]["delegates"]
    assert delegate["insides"] is None


def test_the_border_needs_no_torch() -> None:
    code = "import sys, delegatekit_api.blobs; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
