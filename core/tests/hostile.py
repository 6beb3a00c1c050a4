"""Misbehaving plugins: the installation of each, and its kind of fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: An exception, a class and an object that cannot be shown.
UNREADABLE: Final = """
class Unreadable(BaseException):
    def __str__(self): raise Unreadable()
    __repr__ = __str__
"""

DESCRIBED: Final = """
from delegatekit_api import *
from delegatekit_api.devices import *
from delegatekit_api.schemes import *
from delegatekit_api.documentation import *

@hookimpl
def describe_backend():
    return BackendDescription("odd", "OddBackend", "delegatekit-odd", "1", "x")
"""

RUNTIME: Final = """
class Runtime:
    def is_available(self): {answer}
    def init(self, payload): pass
    def execute(self, handle, inputs, outputs): pass
    def destroy(self, handle): pass

@hookimpl
def create_runtime(): return Runtime()
"""


@dataclass(frozen=True)
class Hostile:
    """One hostile plugin named "odd"."""

    source: str = ""
    group: str = "delegatekit.backends"
    #: The content of its entry_points.txt in place of an installer's.
    entry_points: bytes | None = None
    #: The same for METADATA.
    metadata: bytes | None = None
    #: The commands that name it in one line of stderr, though it was not requested.
    told_by: tuple[str, ...] = ()


def _backend(source: str) -> Hostile:
    """One that cannot even be loaded: reported by the commands that load all backends."""
    return Hostile(source, told_by=("targets", "schemes"))


def _hook(name: str, source: str, told_by: str = "") -> Hostile:
    text = f"{UNREADABLE}{DESCRIBED}@hookimpl\ndef {name}: {source}\n"
    return Hostile(text, told_by=(told_by,) if told_by else ())


def _observer(source: str, *told_by: str) -> Hostile:
    return Hostile(UNREADABLE + "from delegatekit_api import *\n" + source, "delegatekit.observers", told_by=told_by)


def _command(source: str) -> Hostile:
    return Hostile(UNREADABLE + source, "delegatekit.commands")


KINDS: Final = {
    "import raises": _backend("1 / 0"),
    "import needs what is absent": _backend("import a_module_that_nobody_has"),
    "is no Python": _backend("def (:"),
    "is no text": _backend("x = '\\ud800'; raise ValueError(x)"),
    "import exits": _backend("import sys; sys.exit(3)"),
    "import raises no Exception": _backend("class Odd(BaseException): pass\nraise Odd('odd')"),
    "import raises GeneratorExit": _backend("raise GeneratorExit"),
    "import raises what has no text": _backend(UNREADABLE + "raise Unreadable()"),
    "import raises an error of ours without text": _backend(
        "from delegatekit_api import PluginError\n"
        "class Odd(PluginError):\n    def __init__(self): pass\n    def __str__(self): return 7\nraise Odd()"
    ),
    "import raises a group": _backend("raise BaseExceptionGroup('many', [ValueError(1), KeyboardInterrupt()])"),
    "import raises a text of many lines": _backend("raise ValueError('a\\nb\\n' * 5000)"),
    "import recurses": _backend("def f(): f()\nf()"),
    "description raises": Hostile(
        UNREADABLE + "from delegatekit_api import *\n@hookimpl\ndef describe_backend(): raise Unreadable()",
        told_by=("targets", "schemes"),
    ),
    "description is of another class": _backend(
        UNREADABLE
        + "from delegatekit_api import *\n@hookimpl\ndef describe_backend():\n"
        + "    return type('Odd', (), {'__repr__': Unreadable.__str__})()"
    ),
    "description has a field without repr": _backend(
        UNREADABLE
        + DESCRIBED.replace(
            '"x")', "type('Odd', (), {'__repr__': Unreadable.__str__, '__str__': Unreadable.__str__})())"
        )
    ),
    "description has a flag that is a text": _backend(DESCRIBED.replace('"x")', '"x", owns_state="no")')),
    "description has an API version of texts": _backend(
        DESCRIBED.replace('"x")', '"x", api_version=ApiVersion("2", "0"))')
    ),
    "a hook that does not exist": _backend(DESCRIBED + "@hookimpl\ndef prepocess(partition): pass\n"),
    "entry points of broken syntax": Hostile("", entry_points=b"[delegatekit.backends]\nodd\n"),
    "entry points that are not UTF-8": Hostile("", entry_points=b"[delegatekit.backends]\nodd = \xff\xfe\n"),
    "entry point that is no module": Hostile(
        "", entry_points=b"[delegatekit.backends]\nodd = ../odd plugin!\n", told_by=("targets", "schemes")
    ),
    "entry point of an absent attribute": Hostile(
        "",
        entry_points=b"[delegatekit.backends]\nodd = delegatekit_odd_plugin:absent\n",
        told_by=("targets", "schemes"),
    ),
    "metadata of bytes": Hostile("1 / 0", metadata=b"\xff\xfe\0", told_by=("targets", "schemes")),
    "metadata that is empty": Hostile("1 / 0", metadata=b"", told_by=("targets", "schemes")),
    "targets raise": _hook("targets()", "raise Unreadable()", "targets"),
    "targets exit": _hook("targets()", "raise SystemExit(3)", "targets"),
    "targets are a text": _hook("targets()", "return 'many'", "targets"),
    "targets have numbers for options": _hook("targets()", "return [TargetInfo('a', 'b', {'c': 1})]", "targets"),
    "targets have no encoding": _hook("targets()", "return [TargetInfo('\\ud800', 'b')]", "targets"),
    "schemes raise": _hook("quantization_schemes()", "raise Unreadable()", "schemes"),
    "schemes have a wrong field": _hook("quantization_schemes()", "return [QuantizationScheme('a', 7)]", "schemes"),
    "everything is printed": Hostile(
        "import os, sys\nprint('printed')\nos.write(1, b'')\n"
        + DESCRIBED
        + "@hookimpl\ndef targets(): print('printed'); sys.stdout.write('printed'); return []\n"
    ),
    "is_available raises": Hostile(UNREADABLE + DESCRIBED + RUNTIME.format(answer="raise Unreadable()")),
    "is_available answers what has no repr": Hostile(
        UNREADABLE + DESCRIBED + RUNTIME.format(answer="return type('Odd', (), {'__repr__': Unreadable.__str__})()")
    ),
    "observer's import raises": _observer("raise Unreadable()", "lower"),
    "observer's import exits": _observer("raise SystemExit(3)", "lower"),
    "observer raises": _observer("@hookimpl\ndef on_stage(event): raise Unreadable()", "lower"),
    "observer exits": _observer("@hookimpl\ndef on_stage(event): raise SystemExit(3)", "lower"),
    "observer takes what there is not": _observer("@hookimpl\ndef on_stage(event, more): pass", "lower"),
    "observer prints": _observer("@hookimpl\ndef on_stage(event): print('printed')"),
    "command's import raises": _command("raise Unreadable()"),
    "command is a number": _command("def __getattr__(name): return 7"),
    "command has a signature that Typer cannot read": Hostile(
        "def odd(x: object, *, y: set): pass",
        "delegatekit.commands",
        entry_points=b"[delegatekit.commands]\nodd = delegatekit_odd_plugin:odd\n",
    ),
    "command raises": Hostile(
        UNREADABLE + "def odd(): raise Unreadable()",
        "delegatekit.commands",
        entry_points=b"[delegatekit.commands]\nodd = delegatekit_odd_plugin:odd\n",
    ),
    "command has the name of ours": Hostile(
        "def odd(): pass",
        "delegatekit.commands",
        entry_points=b"[delegatekit.commands]\nrun = delegatekit_odd_plugin:odd\n",
    ),
}
