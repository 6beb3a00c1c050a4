"""Isolated compilers: processes of their own, several at a time, and a cache of their results."""

from __future__ import annotations

import json
import os
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import Compiling
from delegatekit.compiling import cache, packed, service
from delegatekit.compiling.result import CheckedResult
from delegatekit.edge.constants import Constants
from delegatekit.plugins import COMPILED, remembered
from delegatekit_api import CompileSpec, LoweringError, NamedData, PluginError, UnsupportedError
from delegatekit_toolkit import later

#: A backend whose compiler runs `BODY`, and records each call in a file.
_SOURCE = """
from delegatekit_api import *
import ctypes, os, pathlib, sys, time, torch

class Takes:
    def keep_operators(self): return ()
    def check(self, call):
        return Verdict.yes() if call.operator in ("aten.sin.default", "aten.mul.Tensor") else Verdict.no("not mine")
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("maker", "MakerBackend", "delegatekit-maker", "1.2", "compiles", {described})

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options):
    with open({calls!r}, "a") as file:
        print(os.getpid(), file=file)
    constants = [value for value in partition.view.constants.values()]
    text = " ".join(node.name for node in partition.view.graph.nodes)
    {body}
    return PreprocessResult(
        text.encode(), (CompileSpec("index", str(partition.index).encode()),),
        tuple(NamedData(f"weight{{i}}", value[:1]) for i, value in enumerate(constants)),
        {{"a": (1, 2), 3: (4,)}},
    )

{more}
"""
_VERSION = "@hookimpl\ndef compiler_version(options): return os.environ.get('TOOL', 'tool 1')"

Make = Callable[..., Callable[[], list[str]]]


@pytest.fixture
def make(install_plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Installs the backend; returns a reader of the processes in which it compiled. The cache is empty."""
    monkeypatch.setenv(remembered.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(COMPILED, raising=False)
    calls = tmp_path / "calls"

    def install(body: str = "pass", described: str = "", more: str = "") -> Callable[[], list[str]]:
        source = _SOURCE.format(body=body, described=described, more=more, calls=str(calls))
        install_plugin("maker", source)
        return lambda: calls.read_text().split() if calls.exists() else []

    return install


class Net(nn.Module):
    """Two partitions for the backend: the runtime computes the tangent between them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.tan(torch.sin(x * self.weight)) * self.weight)


class Sines(nn.Module):
    """One partition."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(torch.sin(torch.sin(x)))


X = torch.ones(4)


def lower(compiling: Compiling | None = None, module: nn.Module | None = None) -> delegatekit.LoweredProgram:
    return delegatekit.lower((module or Net()).eval(), (X,), backends=["maker"], compiling=compiling)


ISOLATED = Compiling(isolate=True)


@pytest.mark.parametrize("compiling", [ISOLATED, Compiling(isolate=["maker"]), Compiling(jobs=2)])
def test_files_are_the_same_wherever_partitions_are_compiled(compiling: Compiling, make: Make) -> None:
    calls = make()
    here = lower().buffer
    assert len(calls()) == 2
    assert len(set(calls())) == 1
    assert lower(compiling).buffer == here
    assert len(set(calls())) == 3, "each in a process of its own"


class Wide(nn.Module):
    """A product with a constant that is converted, and too large to be held."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 1 << 20).bfloat16())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x[0] * self.weight.float())


def test_data_of_computed_constants_are_made_again_when_they_are_written(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = make()
    monkeypatch.setattr(later, "_ROOM", 0)
    program = lower(module=Wide())
    (item,) = (item for item in program.image.named_data if item.key == "weight0")
    assert isinstance(item.data, later.Later) and item.data.nbytes == 4
    assert len(calls()) == 1
    written = program.buffer
    assert len(calls()) == 2
    monkeypatch.setattr(later, "_ROOM", 4)
    assert lower(module=Wide()).buffer == written
    assert len(calls()) == 3


@pytest.mark.parametrize(("much", "count"), [(0, 2), (4 << 20, 1)])
def test_results_of_many_computed_constants_are_not_kept(
    much: int, count: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = make(more=_VERSION)
    monkeypatch.setattr(service, "LARGEST_CACHED", much)
    first = lower(module=Wide()).buffer
    assert lower(module=Wide()).buffer == first
    assert len(calls()) == count


def test_a_compiler_that_makes_other_data_each_time_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    make("constants = [torch.rand(4) for _ in constants]")
    monkeypatch.setattr(later, "_ROOM", 0)
    program = lower(module=Wide())
    with pytest.raises(PluginError, match="backend maker, named data weight0: is not the same each time"):
        program.buffer  # noqa: B018


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(LoweringError, match=r"isolate=\['maker'\]"):
        Compiling(isolate="maker")
    with pytest.raises(LoweringError, match="jobs = 0"):
        Compiling(jobs=0)


def test_a_backend_may_demand_a_process_of_its_own(make: Make) -> None:
    calls = make(described="isolated_compiler=True")
    lower()
    assert len(set(calls())) == 2


def test_others_stay_in_this_process(make: Make) -> None:
    calls = make()
    lower(Compiling(isolate=["another"]))
    assert len(set(calls())) == 1


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('stage 1', flush=True); os.kill(os.getpid(), 11)", r"crashed \(SIGSEGV\); it printed last:\s+stage 1"),
        ("ctypes.string_at(0)", r"crashed \(SIGSEGV\)"),
        ("print('no licence', flush=True); os._exit(7)", r"exit code 7; it printed last:\s+no licence"),
        ("sys.exit('no licence')", "SystemExit"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("time.sleep(600)", "took longer than 12 s and was stopped"),
        ("bytearray(1 << 33)", "MemoryError"),
    ],
)
def test_what_happens_to_a_compiler_is_an_error_that_names_it(body: str, said: str, make: Make, capfd: Any) -> None:
    make(f"({body})" if ";" not in body else body)
    with pytest.raises(LoweringError, match=said) as caught:
        lower(Compiling(isolate=True, seconds=12.0 if "600" in body else 300.0, memory=1 << 31))
    assert caught.value.where == "partition 0 of method forward for backend maker"
    assert "from aten.mul.Tensor" in str(caught.value)
    assert "to the publisher of delegatekit-maker" in str(caught.value)
    assert capfd.readouterr().out == ""
    assert lower(module=nn.Tanh()).buffer, "the next lowering works"


def test_what_a_compiler_prints_does_not_reach_stdout(make: Make, capfd: Any) -> None:
    make("os.write(1, b'progress 100 %')")
    lower(ISOLATED)
    assert capfd.readouterr().out == ""


def test_a_refusal_keeps_its_class_and_words(make: Make) -> None:
    make("raise UnsupportedError('too deep', where='here', hint='less')")
    with pytest.raises(UnsupportedError, match="here: too deep\n  -> less"):
        lower(ISOLATED)


def test_a_wrong_result_is_told_as_in_this_process(make: Make) -> None:
    make("return 7")
    for compiling in (None, ISOLATED):
        with pytest.raises(PluginError, match="preprocess returned int, not a PreprocessResult"):
            lower(compiling)


def test_when_one_fails_the_others_are_ended(make: Make) -> None:
    make("\n    ".join(("", "if partition.index: time.sleep(600)", "raise LoweringError('no')")))
    start = time.monotonic()
    with pytest.raises(LoweringError, match="no"):
        lower(Compiling(jobs=2))
    assert time.monotonic() - start < 120


def test_what_was_compiled_is_kept(make: Make) -> None:
    calls = make(more=_VERSION)
    first = lower().buffer
    assert [lower().buffer, lower(ISOLATED).buffer] == [first, first]
    assert len(calls()) == 2
    lower(Compiling(cache=False))
    assert len(calls()) == 4


_METHODS = """
@hookimpl
def preprocess_methods(methods, options):
    return {{name: [preprocess(item, options) for item in items] for name, items in methods.items()}}

@hookimpl
def compiles_together(options): return {together}
"""


@pytest.mark.parametrize("together", [True, False])
def test_partitions_that_do_not_depend_on_each_other_are_divided_and_kept_one_by_one(
    together: bool, make: Make
) -> None:
    calls = make(more=_VERSION + _METHODS.format(together=together))
    here = lower(Compiling(cache=False)).buffer
    before = len(set(calls()))
    assert lower(Compiling(jobs=2)).buffer == here
    assert len(set(calls())) - before == (0 if together else 2), "one task needs no process"
    compiled = len(calls())
    programs = {name: torch.export.export(net.eval(), (X,)) for name, net in (("forward", Net()), ("more", Sines()))}
    delegatekit.lower(programs, backends=["maker"])
    assert len(calls()) - compiled == (3 if together else 1), "alone, only the second method's is new"


def test_a_backend_that_does_not_tell_its_version_is_not_kept(make: Make) -> None:
    calls = make()
    lower()
    lower()
    assert len(calls()) == 4


@pytest.mark.parametrize(
    "change",
    ["the tool", "a constant", "the program", "turned off", "damage", "the plugin"],
)
def test_a_change_is_compiled_anew(change: str, make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = make(more=_VERSION)
    lower()
    module: nn.Module = Net()
    if change == "the tool":
        monkeypatch.setenv("TOOL", "tool 2")
    elif change == "the plugin":
        (plugin,) = tmp_path.rglob("delegatekit_maker_plugin.py")
        plugin.write_text(plugin.read_text() + "# changed")
    elif change == "a constant":
        with torch.no_grad():
            module.weight[0] = 5.0  # type: ignore[operator]
    elif change == "the program":
        module = nn.Sequential(Net(), nn.Tanh(), Net())
    elif change == "turned off":
        monkeypatch.setenv(COMPILED, "off")
    else:
        _damage(tmp_path / "cache" / "compiled")
    assert lower(module=module).buffer
    assert len(calls()) > 2


def _damage(folder: Path) -> None:
    """Flip a bit of each result."""
    import diskcache

    with diskcache.Cache(str(folder)) as store:
        for key in list(store):
            data = bytearray(store[key])
            data[len(data) // 2] ^= 1
            store[key] = bytes(data)


def test_nothing_is_unpickled_from_the_cache(make: Make, tmp_path: Path) -> None:
    import diskcache

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "hacked",))

    calls = make(more=_VERSION)
    lower()
    with diskcache.Cache(str(tmp_path / "cache" / "compiled")) as store:
        for key in list(store):
            store.set(key, Evil())
    lower()
    assert not (tmp_path / "hacked").exists()
    assert len(calls()) == 4


def test_a_cache_that_cannot_be_used_is_told_and_done_without(make: Make, tmp_path: Path) -> None:
    make(more=_VERSION)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "compiled").write_text("a file")
    with pytest.warns(UserWarning, match="the cache of compiled partitions in .* cannot be used"):
        assert lower().buffer


def test_constants_are_kept_as_references(make: Make, tmp_path: Path) -> None:
    make(more=_VERSION)

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4_000_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    module = Large().eval()
    x = torch.ones(4_000_000)
    one, two = (delegatekit.lower(module, (x,), backends=["maker"]).buffer for _ in range(2))
    assert one == two
    found = cache.Cache.of_user()
    assert found is not None
    assert 0 < found.info().bytes < 1_000_000
    assert found.clear() == 1
    assert found.info().results == 0


@pytest.fixture
def store(make: Make, tmp_path: Path) -> tuple[Path, Callable[[], list[str]]]:
    """The folder of a cache with the partitions of `Net`, in which values are files; and the compiling processes."""
    calls = make(body="text *= 4000", more=_VERSION)
    lower()
    folder = tmp_path / "cache" / "compiled"
    assert len(list(folder.glob("*/*/*.val"))) == 2
    return folder, calls


def change_rows(folder: Path, statement: str, *values: Any) -> None:
    """Change the rows of the database, as another program might."""
    import sqlite3

    connection = sqlite3.connect(folder / "cache.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_values_that_were_exchanged_are_compiled_anew(store: Any) -> None:
    folder, calls = store
    expected = lower(Compiling(cache=False)).buffer
    before = len(calls())
    assert lower().buffer == expected and len(calls()) == before
    first, second = folder.glob("*/*/*.val")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert lower().buffer == expected
    assert len(calls()) == before + 2
    change_rows(folder, "UPDATE Cache SET key = 'other' || key")
    change_rows(
        folder, "UPDATE Cache SET key = (SELECT substr(key, 6) FROM Cache AS other WHERE other.rowid <> Cache.rowid)"
    )
    assert lower().buffer == expected


@pytest.mark.parametrize(
    "name",
    ["../../secret.val", "{secret}", "ab/cd/0123456789012345678901234567.val", "ab/cd/pipe.val", None, 5, b"\xff"],
)
def test_files_outside_of_the_cache_are_neither_read_nor_removed(name: Any, store: Any, tmp_path: Path) -> None:
    folder, calls = store
    secret = tmp_path / "secret.val"
    (value, _) = folder.glob("*/*/*.val")
    secret.write_bytes(value.read_bytes())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0123456789012345678901234567.val").write_bytes(b"kept")
    (folder / "ab").mkdir(exist_ok=True)
    (folder / "ab" / "cd").symlink_to(outside)
    change_rows(folder, "UPDATE Cache SET filename = ?", name.format(secret=secret) if isinstance(name, str) else name)
    expected = lower(Compiling(cache=False)).buffer
    before = len(calls())
    assert lower().buffer == expected
    assert len(calls()) == before + 2
    found = cache.Cache.of_user()
    assert found is not None
    found.clear()
    assert secret.exists() and (outside / "0123456789012345678901234567.val").read_bytes() == b"kept"


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a folder"])
def test_only_regular_files_of_the_cache_are_read(kind: str, store: Any, tmp_path: Path) -> None:
    folder, calls = store
    for number, value in enumerate(list(folder.glob("*/*/*.val"))):
        other = value.rename(tmp_path / f"{number}.val")
        if kind == "a link":
            value.symlink_to(other)
        elif kind == "a pipe":
            os.mkfifo(value)
        else:
            value.mkdir()
    before = len(calls())
    assert lower().buffer
    assert len(calls()) == before + 2


@pytest.mark.parametrize(
    "change",
    [
        {"blob": [-1]},
        {"blob": [1 << 40]},
        {"blob": "many"},
        {"blob": None},
        {"specs": [["index"]]},
        {"specs": [[5, "AAAA"]]},
        {"named": [{"key": "weight", "alignment": 16, "constant": 99, "offset": 0, "length": 4}]},
        {"named": [{"key": "weight", "alignment": 16, "constant": 0, "offset": -4, "length": 4}]},
        {"named": [{"key": "weight", "alignment": 3, "length": 1}]},
        {"named": [{"key": "weight", "alignment": 16, "length": 1 << 60}]},
        {"handles": [["a", 5]]},
        {"handles": [[[], [5]]]},
        {"estimate": 5},
        [],
    ],
    ids=str,
)
def test_a_header_that_says_what_cannot_be_is_damage_although_its_checksum_is_right(change: Any) -> None:
    result = CheckedResult(
        (b"blob",), (CompileSpec("index", b"0"),), (NamedData("weight", b"1234", 16),), {3: (4,)}, None
    )
    constants = Constants({0: torch.ones(4)})
    data = packed.pack(result, constants, "key")
    assert packed.unpack(data, constants, "key").blob[0] == b"blob"
    with pytest.raises(packed.DamagedError, match="another key"):
        packed.unpack(data, constants, "other")
    (length,) = struct.unpack_from("<Q", data, 4)
    header = json.loads(data[12 : 12 + length])
    text = json.dumps({**header, **change} if isinstance(change, dict) else change).encode()
    content = data[:4] + struct.pack("<Q", len(text)) + text + data[12 + length : -32]
    with pytest.raises(packed.DamagedError, match="does not hold what it should"):
        packed.unpack(content + packed._checksum(content, "key"), constants, "key")


@pytest.mark.parametrize("setting", ["eviction_policy", "cull_limit", "size_limit", "disk_min_file_size", "statistics"])
def test_settings_of_the_database_that_mean_nothing_do_no_harm(setting: str, store: Any) -> None:
    folder, _ = store
    change_rows(folder, "UPDATE Settings SET value = 'nonsense' WHERE key = ?", setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert lower().buffer
