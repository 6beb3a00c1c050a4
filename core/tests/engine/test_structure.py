"""The structure of inputs and outputs, read from a file: PyTorch's output is understood, and nothing is imported."""

from __future__ import annotations

import enum
import json
import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from torch.utils import _pytree as pytree

import delegatekit as dk
from delegatekit.engine.structure import read_input_structure, read_structure
from delegatekit.pte import schema
from delegatekit_api import ExecutionError

Point = namedtuple("Point", "x y")
Color = enum.Enum("Color", "RED GREEN")
Color.__qualname__ = "Color"


@pytest.fixture(autouse=True, scope="module")
def point() -> Iterator[None]:
    pytree._register_namedtuple(Point, serialized_type_name="test_structure.Point")
    yield


@pytest.mark.parametrize(
    "tree",
    [
        1,
        (1, [2, {"a": 3, "b": (None, 4)}]),
        OrderedDict(b=1, a=2),
        defaultdict(list, {"a": 1}),
        {"point": Point(1, 2)},
        {},
    ],
)
def test_what_pytorch_writes_is_read(tree: Any) -> None:
    spec = pytree.tree_structure(tree)
    assert read_structure(pytree.treespec_dumps(spec)) == spec


def test_an_enum_whose_module_is_loaded_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("a_loaded_module")
    module.Color = Color  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_loaded_module", module)
    monkeypatch.setattr(Color, "__module__", "a_loaded_module")
    spec = pytree.tree_structure({Color.RED: 1})
    assert read_structure(pytree.treespec_dumps(spec)) == spec


def leaf() -> dict[str, Any]:
    return {"type": None, "context": None, "children_spec": []}


def text(kind: str, context: Any, children: int = 1) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": [leaf()] * children}])


HOSTILE = {
    "defaultdict": text(
        "collections.defaultdict",
        {"default_factory_module": "evil_module", "default_factory_name": "x", "dict_context": ["a"]},
    ),
    "enum": text("builtins.dict", json.dumps([{"__enum__": True, "fqn": "evil_module:x", "name": "x"}])),
    "enum, escaped": text("builtins.dict", '[{"\\u005f_enum__": true, "fqn": "evil_module:x", "name": "x"}]'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_cannot_make_this_process_import_a_module(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit(7)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit):
        pytree.treespec_loads(HOSTILE[name])  # PyTorch's reader does import it
    assert read_structure(HOSTILE[name]) is None


@pytest.mark.parametrize(
    "given",
    [
        "x",
        "[]",
        "[1, 2]",
        "[9, {}]",
        "[" * 100_000,
        text("no.such.type", "null"),
        text("builtins.dict", '{"__enum__": 1, "fqn": "sys:path", "name": 0}'),
        text(
            "collections.defaultdict",
            {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": ["a"]},
        ),
    ],
)
def test_what_is_no_structure_or_unknown_leaves_values_flat(given: str) -> None:
    assert read_structure(given) is None
    assert read_input_structure(given) is None


@pytest.mark.parametrize("tree", [1, (1, {}), ((1,), [2]), ([1], {}), ((1,), {}, 3)])
def test_inputs_are_positions_and_keywords(tree: Any) -> None:
    assert read_input_structure(pytree.treespec_dumps(pytree.tree_structure(tree))) is None
    good = pytree.treespec_dumps(pytree.tree_structure(((1, 2), {"a": 3})))
    assert read_input_structure(good) is not None


def test_outputs_that_their_container_refuses_are_an_execution_error() -> None:
    """A dict with unhashable keys."""

    def change(plan: schema.ExecutionPlan) -> None:
        plan.container_meta_type = schema.ContainerMetadata("", text("builtins.dict", "[[1]]"))

    method = dk.load(handmade.add_program(change))["forward"]
    with pytest.raises(ExecutionError, match="its outputs do not make a dict: TypeError"):
        method(torch.ones(5))
    assert method.run([torch.ones(5)])[0].tolist() == [11.0, 21.0, 31.0, 41.0, 51.0]
