"""Hooks made of references: loaded when called, called as pluggy calls them, clear where they lead nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pluggy
import pytest

from delegatekit_api import BackendOptions, BackendSpec
from delegatekit_api.versions import PROJECT
from delegatekit_toolkit.hooks import lazy_documentation, lazy_hook, resolve

ROOMS = """
from delegatekit_toolkit.support import SupportTable, row

SCHEMES = ("int8",)
TABLE = SupportTable([row("add.Tensor", print)])

class Partitioner:
    def __init__(self, options): self.options = options

def operators(blob, named_data): return [bytes(blob), *named_data]
def compiled(view, options): return view
"""


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package whose module `rooms` has what hooks refer to, and `broken`, which cannot be imported."""
    folder = tmp_path / "lazily"
    folder.mkdir()
    for name, text in (("__init__", ""), ("rooms", ROOMS), ("broken", "import no_such_tool")):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lazily", "lazily.rooms"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "lazily"


def hooks_of(**hooks: Any) -> Any:
    """The hooks as pluggy calls them, after its check against the specification."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(BackendSpec)
    manager.register(type("Plugin", (), {name: staticmethod(hook) for name, hook in hooks.items()})())
    manager.check_pending()
    return manager.hook


def test_nothing_is_imported_before_a_hook_is_called(rooms: str) -> None:
    hooks = hooks_of(quantization_schemes=lazy_hook("quantization_schemes", f"{rooms}.rooms:SCHEMES"))
    assert f"{rooms}.rooms" not in sys.modules
    assert hooks.quantization_schemes(options=BackendOptions()) == ("int8",)
    assert f"{rooms}.rooms" in sys.modules


def test_a_class_and_a_function_get_the_arguments_that_they_name(rooms: str) -> None:
    hooks = hooks_of(
        create_partitioner=lazy_hook("create_partitioner", f"{rooms}.rooms:Partitioner"),
        blob_operators=lazy_hook("blob_operators", f"{rooms}.rooms:operators"),
    )
    options = BackendOptions()
    assert hooks.create_partitioner(options=options).options is options
    given = {"blob": memoryview(b"x"), "compile_specs": (), "named_data": {"key": b""}, "method": "forward"}
    assert hooks.blob_operators(**given) == [b"x", "key"]


def test_the_documentation_is_that_of_the_table(rooms: str) -> None:
    page = hooks_of(documentation=lazy_documentation(f"{rooms}.rooms:TABLE")).documentation()
    assert [entry.operator for entry in page.operators.entries] == ["aten.add.Tensor"]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("lazily.rooms:Nothing", "'lazily.rooms:Nothing' leads nowhere: lazily.rooms has no Nothing"),
        ("lazily.nothing:TABLE", "'lazily.nothing:TABLE' leads nowhere: there is no module lazily.nothing"),
        ("lazilyy.rooms:TABLE", "'lazilyy.rooms:TABLE' leads nowhere: there is no module lazilyy"),
        # Not the reference's fault.
        ("lazily.broken:TABLE", "No module named 'no_such_tool'"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(reference: str, reason: str, rooms: str) -> None:
    for hook in (lazy_hook("targets", reference), lazy_documentation(reference)):
        with pytest.raises(ImportError) as refused:
            hook()
        assert str(refused.value) == reason


def test_a_function_that_wants_what_the_hook_does_not_give_is_told(rooms: str) -> None:
    reason = "'lazily.rooms:compiled' has the parameter view, which the hook preprocess does not give"
    with pytest.raises(TypeError, match=reason):
        lazy_hook("preprocess", f"{rooms}.rooms:compiled")(partition=None, options=BackendOptions())


@pytest.mark.parametrize("reference", ["json", "json:", ":dumps", "json:dumps:dumps", "json:dumps()", ""])
def test_what_is_no_reference_is_refused_at_once(reference: str) -> None:
    for make in (lambda: lazy_hook("targets", reference), lambda: lazy_documentation(reference)):
        with pytest.raises(ValueError, match=r"is not like package\.module:name"):
            make()


def test_a_name_that_no_hook_has_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"there is no hook prepocess, for which 'a\.b:c' is given"):
        lazy_hook("prepocess", "a.b:c")


def test_making_hooks_imports_neither_torch_nor_the_tables() -> None:
    code = (
        "import sys; from delegatekit_toolkit import hooks\n"
        "hooks.lazy_hook('preprocess', 'torch:compile'); hooks.lazy_documentation('torch:TABLE')\n"
        "assert not {'torch', 'delegatekit_toolkit.support'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_reference_leads_to_what_it_names() -> None:
    assert resolve("delegatekit_toolkit.hooks:resolve") is resolve
