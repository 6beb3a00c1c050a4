"""The tests of a plugin's hooks that are the same for every plugin, as a class to derive from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import ClassVar

import pytest

from delegatekit.plugins import BACKEND_GROUP, get_backend
from delegatekit_api import OptionError
from delegatekit_toolkit.hooks import resolve

from .cases.base import Rule
from .cases.contract import description, options
from .context import Context

__all__ = ["PluginTests"]

#: Rules of the contract about the plugin itself. Two more about options lower programs: the suite's own run has them.
_RULES = {
    rule.name.partition("/")[2]: rule
    for rule in (*description.RULES, *options.RULES)
    if rule.name not in ("contract/options-name-something", "contract/options-of-partitioners")
}

#: What is asked in a process of its own, first without the core. Modules that are None cannot be imported.
_SCRIPT = """
import sys
from importlib.metadata import entry_points
backend, tool, remedy, heavy = {!r}, {!r}, {!r}, {!r}
(entry,) = entry_points(group={!r}, name=backend)
entry.load().describe_backend()
assert not ({{*heavy, "delegatekit"}} & set(sys.modules)), "describing the backend imports too much"

from delegatekit.plugins import get_backend
found = get_backend(backend)
found.targets()
assert not (heavy & set(sys.modules)), "asking for the targets imports too much"
if tool:
    found.compiler_availability()
    assert tool not in sys.modules, "asking for the compiler imports it"
    sys.modules[tool] = None
    answer = found.compiler_availability()
    assert not answer.available and remedy in answer.reason, answer
    found.targets(), found.quantization_schemes()
"""


class PluginTests:
    """Tests of a plugin, which derive from this class and say whose they are.

        class TestPlugin(PluginTests):
            backend = "mine"
            delegate_id = "MineBackend"
            tool = ("vendor_tool", "pip install vendor-tool")
            wrong_options = ({"level": 9},)

    The contract that they check is the suite's (`delegatekit conform`), as far as no program is lowered for it.
    """

    backend: ClassVar[str]
    delegate_id: ClassVar[str]
    #: The option that a target sets to its own name; empty if there is none.
    target_option: ClassVar[str] = ""
    #: The module without which nothing can be compiled, and words of the reason that tell what to do; empty if none is.
    tool: ClassVar[tuple[str, str]] = ("", "")
    #: Options that are refused at the latest when the partitioner is made.
    wrong_options: ClassVar[tuple[Mapping[str, object], ...]] = ()
    #: Modules that a plugin does not import before it compiles or runs; add those of the vendor.
    heavy: ClassVar[frozenset[str]] = frozenset({"torch", "numpy", "executorch"})

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """A test for each rule, and for each of the wrong options."""
        if "rule" in metafunc.fixturenames:
            metafunc.parametrize("rule", _RULES)
        if "wrong" in metafunc.fixturenames:
            metafunc.parametrize("wrong", self.wrong_options, ids=str)

    def test_the_plugin_keeps_the_contract(self, rule: str) -> None:
        """Its hooks fit the specification, its description is true, options are described, checked and refused."""
        checked: Rule = _RULES[rule]
        outcome = checked.run(checked.describe(), Context(self.backend))
        assert not outcome.verdict.is_fault, f"{checked.describe()}\n{outcome.detail}"

    def test_the_delegate_id_is_the_one_of_the_device(self) -> None:
        """The id is the one that the runtime on the device registers."""
        assert get_backend(self.backend).description.delegate_id == self.delegate_id

    def test_hooks_made_of_references_lead_somewhere(self) -> None:
        """Each is the hook that its name in the module says, and there is what it refers to."""
        (entry,) = entry_points(group=BACKEND_GROUP, name=self.backend)
        for name, hook in vars(entry.load()).items():
            if hasattr(hook, "reference"):
                assert hook.__name__ == name, f"the hook {name} is made as {hook.__name__}"
                resolve(hook.reference)

    def test_a_target_chooses_itself(self) -> None:
        """The options of a target are such that the target is chosen by them, and no other one."""
        backend = get_backend(self.backend)
        chosen = [(target.name, backend.make_options(target.options)) for target in backend.targets()]
        assert len({found for _, found in chosen}) == len(chosen)
        if self.target_option:
            assert chosen and {name: getattr(found, self.target_option) for name, found in chosen} == {
                name: name for name, _ in chosen
            }

    def test_wrong_options_are_refused(self, wrong: Mapping[str, object]) -> None:
        """At the latest when the partitioner is made, before anything is lowered."""
        backend = get_backend(self.backend)
        with pytest.raises(OptionError):
            backend.create_partitioner(backend.make_options(wrong))

    def test_the_documentation_has_a_row_for_each_operator(self) -> None:
        """The page lists the operators, each once, in alphabetical order."""
        table = get_backend(self.backend).documentation().operators
        assert table is not None and table.entries
        names = [entry.operator for entry in table.entries]
        assert sorted(set(names), key=str.lower) == names

    def test_it_is_listed_without_what_is_heavy_and_without_the_vendors_tool(self) -> None:
        """In a process of its own: without the tool it says how to get it, and all that needs no tool is answered."""
        tool, remedy = self.tool
        heavy = self.heavy | ({tool} if tool else set())
        script = _SCRIPT.format(self.backend, tool, remedy, set(heavy), BACKEND_GROUP)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
