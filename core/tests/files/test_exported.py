"""A .pt2 or .pt file runs no code unless it is trusted: one hostile file for each way that PyTorch leaves open."""

from __future__ import annotations

import decimal
import io
import json
import logging
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from torch.export import Dim

import delegatekit
from delegatekit.files.exported import check_exported, load_exported
from delegatekit.files.pickles import UntrustedError, read_pickled
from delegatekit.files.program_text import check_program_text
from delegatekit_api import FormatError

#: Set by code in a file.
RAN = "DELEGATEKIT_TEST_RAN"


class Payload:
    """An object whose unpickling runs code."""

    def __reduce__(self) -> Any:
        return os.putenv, (RAN, "1")


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> Any:
        return {"y": self.layer(x).reshape(-1) + torch.ones(2 * x.shape[0])}, more["z"] * torch.tensor([2.0])


@pytest.fixture(scope="module")
def good() -> bytes:
    n = Dim("n", min=2, max=16)
    inputs = torch.ones(4, 3), {"z": torch.ones(1)}
    exported = torch.export.export(Model().eval(), inputs, dynamic_shapes=({0: n}, {"z": None}))
    buffer = io.BytesIO()
    torch.export.save(exported, buffer)
    return buffer.getvalue()


#: Replacements of the parts whose name ends so.
Changes: TypeAlias = dict[str, Callable[[bytes], bytes]]


def changed(archive: bytes, changes: Changes, extra: dict[str, bytes] | None = None) -> bytes:
    """An archive with other content for the parts whose name ends so, and with further parts."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(result, "w") as new:
        root = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            data = old.read(name)
            for end, change in changes.items():
                if name.endswith(end):
                    data = change(data)
            new.writestr(name, data)
        for name, data in (extra or {}).items():
            new.writestr(f"{root}/{name}", data)
    return result.getvalue()


def saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def graph(change: Callable[[Any], object]) -> Changes:
    """The program's JSON, modified in place."""

    def apply(data: bytes) -> bytes:
        program = json.loads(data)
        change(program)
        return json.dumps(program).encode()

    return {"models/model.json": apply}


def first_node(program: Any) -> Any:
    return next(
        node for node in program["graph_module"]["graph"]["nodes"] if node["target"].endswith("reshape.default")
    )


def tree(program: Any) -> Any:
    return program["graph_module"]["module_call_graph"][0]["signature"]


def payload(name: str, *, pickled: bool) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        config = json.loads(data)
        item = next(iter(config["config"].values()))
        item.update(path_name=name, use_pickle=pickled)
        return json.dumps(config).encode()

    return apply


FACTORY = {
    "type": "collections.defaultdict",
    "context": {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []},
    "children_spec": [],
}
CODE = "__import__('os').putenv('DELEGATEKIT_TEST_RAN', '1')"

#: Name -> changed parts and further parts of an archive.
HOSTILE: dict[str, tuple[Changes, dict[str, bytes]]] = {
    "the example inputs": ({"sample_inputs/model.pt": lambda _: saved(((Payload(),), {}))}, {}),
    "weights in the old form": ({}, {"data/weights/model.pt": saved({"layer.weight": Payload()})}),
    "constants in the old form": ({}, {"data/constants/model.pt": saved({"c": Payload()})}),
    "a weight": (
        {"model_weights_config.json": payload("evil", pickled=True)},
        {"data/weights/evil": saved(Payload())},
    ),
    "a constant": (
        {"model_constants_config.json": payload("tensor_9", pickled=True)},
        {"data/constants/tensor_9": saved(Payload())},
    ),
    "an object": (
        {"model_constants_config.json": payload("opaque_obj_0", pickled=False)},
        {"data/constants/opaque_obj_0": pickle.dumps(Payload())},
    ),
    "a TorchScript object": (
        {"model_constants_config.json": payload("custom_obj_0", pickled=False)},
        {"data/constants/custom_obj_0": b""},
    ),
    "compiled code": ({}, {"data/aotinductor/model/model.so": b"\x7fELF"}),
    "a size": (
        graph(lambda p: p["graph_module"]["graph"]["tensor_values"]["x"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": CODE, "hint": {"as_int": 4}}}
        )),
        {},
    ),
    "a size that takes for ever": (
        graph(lambda p: p["graph_module"]["graph"]["tensor_values"]["x"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": "9**9**9**9", "hint": {"as_int": 4}}}
        )),
        {},
    ),
    "a guard": (graph(lambda p: p["guards_code"].append(CODE)), {}),
    "a value's name": (
        graph(lambda p: p["graph_module"]["graph"]["inputs"][0]["as_tensor"].update(name=f"x={CODE}")), {},
    ),
    "a function": (graph(lambda p: first_node(p).update(target="torch.os.system")), {}),
    "a function of operator": (graph(lambda p: first_node(p).update(target="_operator.methodcaller")), {}),
    "an operator that opens files": (
        graph(lambda p: first_node(p).update(target="torch.ops.aten.from_file.default")), {},
    ),
    "what loads libraries": (graph(lambda p: first_node(p).update(target="torch.ops.load_library")), {}),
    "the structure of the inputs": (graph(lambda p: tree(p).update(in_spec=json.dumps([1, FACTORY]))), {}),
    "the structure of the outputs": (graph(lambda p: tree(p).update(out_spec=json.dumps([1, FACTORY]))), {}),
}  # fmt: skip


def test_what_torch_writes_passes(good: bytes, tmp_path: Path) -> None:
    (tmp_path / "good.pt2").write_bytes(good)
    program = load_exported(tmp_path / "good.pt2")
    outputs = program.module()(torch.ones(3, 3), {"z": torch.ones(1)})
    assert outputs[1].item() == 2.0


@pytest.mark.parametrize("hostile", HOSTILE)
def test_code_is_not_run(hostile: str, good: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("torch loads the file")

    monkeypatch.setattr(torch.export, "load", refuse)
    path = tmp_path / "evil.pt2"
    path.write_bytes(changed(good, *HOSTILE[hostile]))
    with pytest.raises(
        UntrustedError, match=r"evil\.pt2.* can run any code while it is loaded\n  -> .*--trust.*trust=True"
    ):
        delegatekit.load_quantized(path)


class Pooled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.nn.functional.avg_pool2d(x, 3, 2, ceil_mode=True)[:, :, : (x.shape[2] + 1) // 3], x.shape[2] % 2


class Read(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        n = x.nonzero()
        return (
            n + 1,
            torch.zeros(max(x.shape[0], 4)),
            x.shape[0] / 2,
            torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
        )


@pytest.mark.parametrize(
    "model, shape, sizes",
    [(Pooled, (1, 2, 16, 16), {2: Dim.AUTO, 3: Dim.AUTO}), (Read, (6,), {0: Dim.AUTO})],
)
def test_sizes_and_guards_that_torch_writes_pass(
    model: type[torch.nn.Module], shape: tuple[int, ...], sizes: Any, tmp_path: Path
) -> None:
    inputs = (torch.ones(shape),)
    torch.export.save(torch.export.export(model(), inputs, dynamic_shapes=(sizes,)), tmp_path / "x.pt2")
    assert load_exported(tmp_path / "x.pt2").module()(*inputs)


#: A guard is Python source: each of these would do something other than compare sizes.
GUARDS = [
    "__import__('os').getpid()", "L['x'].size.__globals__['x']", "(lambda: 1)()", "[x for x in L]", "eval('1')",
    "getattr(L, 'x')", "math.__loader__", "math.__class__('x')", "open('x')", "L['x'].data_ptr()", "f'{L}'",
    "(y := 1)", "9 ** 9 ** 9", "1 # comment", "'\n'", "L['x'].size()[0] == 2, exit()",
]  # fmt: skip


@pytest.mark.parametrize("text", GUARDS)
def test_guards_that_do_more_than_compare_are_not_run(text: str) -> None:
    program = json.dumps({"guards_code": [text]}).encode()
    with pytest.raises(UntrustedError, match="an unusual guards_code"):
        check_program_text(program, "x")


def test_a_file_that_is_trusted_may_run_code(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.pt2"
    path.write_bytes(changed(good, {"sample_inputs/model.pt": lambda _: saved(((decimal.Decimal("1.5"),), {}))}))
    with pytest.raises(UntrustedError, match=r"a pickled object \(decimal\.Decimal\)"):
        delegatekit.load_quantized(path)
    inputs = delegatekit.load_quantized(path, trust=True).example_inputs
    assert inputs == ((decimal.Decimal("1.5"),), {})


OLD = {"version": b"8.20", "serialized_exported_program.json": b"{}", "serialized_constants.pt": b""}


@pytest.mark.parametrize(
    "part", ["serialized_state_dict.pt", "serialized_example_inputs.pt", "serialized_constants.json"]
)
def test_files_of_old_versions_run_no_code_either(part: str, tmp_path: Path) -> None:
    path = tmp_path / "old.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (OLD | {part: saved(Payload())}).items():
            archive.writestr(name, data)
    with pytest.raises(UntrustedError, match=part):
        check_exported(path)


def test_a_part_that_is_there_twice_is_refused(good: bytes, tmp_path: Path) -> None:
    """Readers of archives do not agree which one counts; PyTorch's even ignores case."""
    path = tmp_path / "twice.pt2"
    path.write_bytes(changed(good, {}, {"data/SAMPLE_inputs/model.pt": saved(Payload())}))
    with pytest.raises(FormatError, match="is in the archive twice"):
        delegatekit.load_quantized(path)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/models/model.json", bytes(65 << 20))
    with pytest.raises(FormatError, match="but unpacks to"):
        delegatekit.load_quantized(path)


@pytest.mark.parametrize("kind", ["foreign", "text", "empty", "folder", "missing", "fifo", "cut", "no weights", "torn"])
def test_what_is_no_exported_program_gets_an_error_without_a_traceback(
    kind: str, good: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "other.pt2"
    if kind == "foreign":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("hello.txt", "hello")
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "no weights":
        path.write_bytes(changed(good, {"weights_config.json": lambda _: b'{"config": {}}'}))
    elif kind == "torn":
        path.write_bytes(changed(good, graph(lambda program: program.pop("graph_module"))))
    elif kind != "missing":
        path.write_bytes({"text": b"hello", "empty": b"", "cut": good[: len(good) // 2]}[kind])
    with caplog.at_level(logging.WARNING):
        for trust in (False, True):
            with pytest.raises(FormatError, match=r"other\.pt2"):
                delegatekit.load_quantized(path, trust=trust)
    assert not caplog.records


@pytest.mark.parametrize("value", [Payload(), [torch.ones(2), Payload()]])
def test_pickled_inputs_run_no_code(value: object, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(saved(value))
    with pytest.raises(UntrustedError, match=r"x\.pt: has a pickled object \(posix\.putenv\), which can run any code"):
        read_pickled(tmp_path / "x.pt")
    read_pickled(tmp_path / "x.pt", trust=True)


@pytest.mark.filterwarnings("ignore:.*TorchScript")
def test_a_torchscript_program_is_no_tensor(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.ReLU()).save(tmp_path / "x.pt")
    with pytest.raises(FormatError, match=r"x\.pt"):
        read_pickled(tmp_path / "x.pt")


def test_tensors_and_plain_containers_need_no_trust(tmp_path: Path) -> None:
    value = [(torch.ones(2), {"a": torch.zeros(3, dtype=torch.int8)}), (1, 2.5, "text", None)]
    (tmp_path / "x.pt").write_bytes(saved(value))
    assert str(read_pickled(tmp_path / "x.pt")) == str(value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 and no more"])
def test_what_is_no_pickle_is_an_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.pt: cannot be read"):
        read_pickled(tmp_path / "x.pt")
