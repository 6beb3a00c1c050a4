"""Installed backends are listed with their state and reason, and no plugin can disturb another one or the process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hostile import RUNTIME

from delegatekit.plugins import (
    ALLOW_LIST,
    OBSERVER_GROUP,
    BackendInfo,
    PluginWarning,
    discovery,
    find_by_delegate_id,
    observers,
)
from delegatekit_api import ApiVersion, OptionError, PluginError
from delegatekit_api.observers import StageEvent
from delegatekit_api.versions import API_VERSION

#: Kinds of broken plugins, and a required part of the reason.
BROKEN = {
    "import error": ("import a_module_that_nobody_has", "No module named 'a_module_that_nobody_has'"),
    "syntax error": ("def (:", "SyntaxError"),
    "exit": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "not an Exception": ("class Odd(BaseException): pass\nraise Odd('odd one')", "odd one"),
    "endless recursion": ("def f(): f()\nf()", "RecursionError"),
    "no hook": ("x = 1", "no describe_backend"),
    "unmarked hook": ("def describe_backend(): return None", "no describe_backend"),
    "hook returns None": (
        "from delegatekit_api import *\n@hookimpl\ndef describe_backend(): return None",
        "returned NoneType, not a BackendDescription",
    ),
    "hook raises": (
        "from delegatekit_api import *\n@hookimpl\ndef describe_backend(): 1 / 0",
        "describing itself failed: ZeroDivisionError",
    ),
    "hook with unknown argument": (
        "from delegatekit_api import *\n@hookimpl\ndef describe_backend(x): return None",
        "describing itself failed",
    ),
}

DESCRIBED = """
from delegatekit_api import *

@hookimpl
def describe_backend():
    return BackendDescription({arguments})
"""

#: Wrong facts in a description, and a piece of the reason.
WRONG_FACTS = {
    "other name": ('"other", "OddBackend", "delegatekit-odd", "1", "x"', "calls itself 'other'"),
    "no delegate id": ('"odd", None, "delegatekit-odd", "1", "x"', "its description.delegate_id is None, not a str"),
    "version is a number": (
        '"odd", "OddBackend", "delegatekit-odd", 1, "x"',
        "its description.version is 1, not a str",
    ),
    "api version is a text": (
        '"odd", "OddBackend", "delegatekit-odd", "1", "x", api_version="1.0"',
        "api_version is '1.0'",
    ),
    "options are a dict": ('"odd", "OddBackend", "delegatekit-odd", "1", "x", options=dict', "subclass of"),
    "overread is negative": ('"odd", "OddBackend", "delegatekit-odd", "1", "x", overread_bytes=-1', "overread_bytes"),
}

FULL = """
from delegatekit_api import *
from dataclasses import dataclass

@dataclass(frozen=True)
class Options(BackendOptions):
    level: int = option(1, help="How hard to try.")

@hookimpl
def describe_backend():
    return BackendDescription("full", "FullBackend", "delegatekit-full", "1.2", "x", options=Options)

"""


def plugin(hook: str) -> str:
    return FULL + "@hookimpl\n" + hook


def listed(name: str) -> BackendInfo:
    return discovery.backends()[name]


def test_an_installed_plugin_is_ready_and_says_who_it_is(install_plugin: Any) -> None:
    install_plugin("good")
    info = listed("good")
    assert info.usable
    assert (info.distribution, info.version, info.api_version, info.delegate_id, info.summary) == (
        "delegatekit-good",
        "1.2",
        str(API_VERSION),
        "goodBackend",
        "a test backend",
    )
    assert discovery.get_backend("good").name == "good"
    assert find_by_delegate_id("goodBackend").name == "good"


def test_listing_from_metadata_imports_nothing(install_plugin: Any) -> None:
    install_plugin("lazy", "raise AssertionError('imported')")
    info = discovery.backends(check=False)["lazy"]
    assert (info.status, info.distribution, info.version) == ("not imported", "delegatekit-lazy", "1.2")


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_listed_with_its_reason_and_disturbs_nobody(kind: str, install_plugin: Any) -> None:
    source, reason = BROKEN[kind]
    install_plugin("good")
    install_plugin("odd", source)
    assert listed("odd").status == "broken"
    assert reason in listed("odd").reason
    assert listed("good").usable
    with pytest.raises(PluginError, match="backend odd: is broken"):
        discovery.get_backend("odd")
    assert discovery.get_backend("good").name == "good"


@pytest.mark.parametrize("kind", WRONG_FACTS)
def test_wrong_facts_in_a_description_are_told(kind: str, install_plugin: Any) -> None:
    arguments, reason = WRONG_FACTS[kind]
    install_plugin("odd", DESCRIBED.format(arguments=arguments))
    assert listed("odd").status == "broken"
    assert reason in listed("odd").reason


@pytest.mark.parametrize(("version", "reason"), [("(99, 0)", "too new"), ("(2, 99)", "too new"), ("(1, 9)", "too old")])
def test_a_plugin_of_another_api_version_is_incompatible(version: str, reason: str, install_plugin: Any) -> None:
    # It may also have hooks and arguments unknown to this core: the reason is the version, not these.
    text = DESCRIBED.format(
        arguments=f'"odd", "OddBackend", "delegatekit-odd", "1", "x", api_version=ApiVersion{version}'
    )
    text += "@hookimpl\ndef hook_of_another_time(x): pass\n@hookimpl\ndef preprocess(partition, other): pass\n"
    install_plugin("odd", text)
    assert listed("odd").status == "incompatible"
    assert reason in listed("odd").reason
    with pytest.raises(PluginError, match=reason):
        discovery.get_backend("odd")


def test_an_unknown_hook_makes_a_plugin_of_this_api_version_broken(install_plugin: Any) -> None:
    install_plugin("full", plugin("def prepocess(partition, options): pass"))
    assert listed("full").status == "broken"
    assert "prepocess" in listed("full").reason


def test_two_distributions_that_claim_one_name_are_both_left_out(install_plugin: Any) -> None:
    install_plugin("good")
    install_plugin("twin", distribution="delegatekit-twin")
    install_plugin("twin", distribution="acme-twin")
    info = listed("twin")
    assert info.status == "duplicate"
    assert "delegatekit-twin 1.2" in info.reason and "acme-twin 1.2" in info.reason
    with pytest.raises(PluginError, match="is duplicate"):
        discovery.get_backend("twin")
    assert listed("good").usable


def test_one_distribution_seen_through_two_folders_is_no_duplicate(install_plugin: Any) -> None:
    install_plugin("same")
    install_plugin("same")
    assert listed("same").usable


def test_the_allow_list_turns_all_others_off(install_plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin("good")
    install_plugin("bad", "raise AssertionError('imported')")
    monkeypatch.setenv(ALLOW_LIST, " good , other")
    assert listed("good").usable
    assert listed("bad").status == "not allowed"
    with pytest.raises(PluginError, match="not allowed"):
        discovery.get_backend("bad")
    monkeypatch.setenv(ALLOW_LIST, "")
    assert listed("good").status == "not allowed"


def test_an_unknown_name_gets_the_list_of_what_is_there_and_a_hint(install_plugin: Any) -> None:
    install_plugin("good")
    with pytest.raises(PluginError) as caught:
        discovery.get_backend("nosuch")
    assert "good" in caught.value.what
    assert "pip install" not in str(caught.value) and "`delegatekit backends`" in str(caught.value.hint)


def test_an_unknown_delegate_id_gets_the_list_of_those_that_are_there(install_plugin: Any) -> None:
    install_plugin("good")
    with pytest.raises(PluginError, match=r"NosuchBackend.*good \(goodBackend\)"):
        find_by_delegate_id("NosuchBackend")


def test_what_is_uninstalled_is_gone_after_a_refresh(install_plugin: Any) -> None:
    folder = install_plugin("good")
    assert listed("good").usable
    shutil.rmtree(folder)
    discovery.refresh()
    assert "good" not in discovery.backends()


def test_what_a_plugin_prints_goes_to_stderr(install_plugin: Any, capsys: pytest.CaptureFixture[str]) -> None:
    install_plugin("full", "print('importing')\n" + plugin("def quantization_schemes(): print('asked'); return []"))
    assert discovery.get_backend("full").quantization_schemes() == ()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "importing" in captured.err and "asked" in captured.err


def test_an_installation_with_damaged_metadata_is_listed(install_plugin: Any) -> None:
    folder = install_plugin("good")
    install_plugin("other")
    (folder / "delegatekit_good-1.2.dist-info" / "METADATA").unlink()
    discovery.refresh()
    found = discovery.backends()
    assert found["other"].usable
    assert found["good"].version == "unknown" or found["good"].version == "1.2"


def test_options_are_those_that_the_plugin_declares(install_plugin: Any) -> None:
    install_plugin("full", FULL)
    backend = discovery.get_backend("full")
    options: Any = backend.make_options({"level": "3"})
    assert options.level == 3
    with pytest.raises(OptionError, match="unknown option 'depth'"):
        backend.make_options({"depth": 1})


def test_an_option_may_change_the_precision(install_plugin: Any) -> None:
    install_plugin("full", FULL)
    assert discovery.get_backend("full").compute_precision({"level": 2}) == "float32"
    hook = "def compute_precision(options): return 'float16' if options.level > 1 else 'float32'"
    install_plugin("half", plugin(hook).replace("full", "half"))
    found = discovery.get_backend("half")
    assert [found.compute_precision(), found.compute_precision({"level": "2"})] == ["float32", "float16"]


@pytest.mark.parametrize(
    ("hook", "ask", "reason"),
    [
        ("def create_partitioner(options): return 7", "create_partitioner", "without keep_operators"),
        ("def create_partitioner(options): return None", "create_partitioner", "returned None"),
        ("def create_partitioner(options): 1 / 0", "create_partitioner", "failed: ZeroDivisionError"),
        ("def create_partitioner(options): raise SystemExit(4)", "create_partitioner", "called exit"),
        ("def create_runtime(): return object()", "create_runtime", "without is_available"),
        ("def compute_precision(options): return 16", "compute_precision", "did not return a dtype's name but 16"),
        ("def quantization_schemes(): return 'int8'", "quantization_schemes", "QuantizationScheme"),
        ("def documentation(): return 'all'", "documentation", "BackendDocumentation"),
        (
            "def preprocess_methods(methods, options): pass\n@hookimpl\ndef compiles_together(options): return 1",
            *("compiles_together", "is 1, not a bool"),
        ),
        ("def create_runtime(): return object()", "create_partitioner", "does not implement create_partitioner"),
        (
            "def targets(): pass\nfrom delegatekit_toolkit.hooks import lazy_hook\n"
            "create_partitioner = lazy_hook('create_partitioner', 'delegatekit_full_plugin:Takes')",
            *("create_partitioner", "'delegatekit_full_plugin:Takes' leads nowhere"),
        ),
    ],
)
def test_a_wrong_answer_of_a_plugin_is_an_error_that_names_it(
    hook: str, ask: str, reason: str, install_plugin: Any
) -> None:
    install_plugin("full", plugin(hook))
    backend = discovery.get_backend("full")
    arguments = (backend.make_options({}),) if ask in ("create_partitioner", "compiles_together") else ()
    with pytest.raises(PluginError, match=reason) as caught:
        getattr(backend, ask)(*arguments)
    assert caught.value.where == "backend full (delegatekit-full 1.2)"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("return Availability(False, 'no device')", "no device"),
        ("raise OSError('libx.so: not found')", "OSError: libx.so: not found"),
        ("raise SystemExit(1)", "SystemExit"),
        ("return True", "not an Availability"),
    ],
)
def test_a_runtime_that_cannot_work_says_why_and_never_raises(answer: str, reason: str, install_plugin: Any) -> None:
    install_plugin("full", FULL + RUNTIME.format(answer=answer))
    availability = discovery.get_backend("full").runtime_availability()
    assert not availability.available
    assert reason in availability.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("return Availability(False, 'no tool')", "no tool"),
        ("return Availability(options.level < 2, 'too much for this tool')", ""),
        ("raise LoweringError('no tool', hint='pip install tool')", "no tool: pip install tool"),
        ("raise OSError('libx.so: not found')", "OSError: libx.so: not found"),
        ("raise SystemExit(1)", "compiler_availability failed: SystemExit: 1"),
        ("return 'yes'", "compiler_availability is 'yes', not an Availability"),
    ],
)
def test_a_compiler_that_cannot_work_says_why_and_never_raises(answer: str, reason: str, install_plugin: Any) -> None:
    install_plugin("full", plugin(f"def compiler_availability(options): {answer}"))
    backend = discovery.get_backend("full")
    availability = backend.compiler_availability()
    assert availability.available is not bool(reason)
    assert reason in availability.reason
    assert not backend.compiler_availability(backend.make_options({"level": 3})).available


def test_a_plugin_without_runtime_is_ready_but_runs_nothing_here(install_plugin: Any) -> None:
    install_plugin("full", FULL)
    assert listed("full").usable
    assert not discovery.get_backend("full").runtime_availability().available


OBSERVER = """
from delegatekit_api import *
heard = []

@hookimpl
def on_stage({argument}):
    {action}

@hookimpl
def conformance_cases(backend):
    return [backend + "-case"]
"""


def test_observers_hear_every_stage_and_a_failing_one_is_reported_once(install_plugin: Any) -> None:
    install_plugin(
        "quiet",
        OBSERVER.format(argument="", action="heard.append(1)"),
        group=OBSERVER_GROUP,
        distribution="quiet",
    )
    install_plugin(
        "loud",
        OBSERVER.format(argument="event", action="raise ValueError(event.stage)"),
        group=OBSERVER_GROUP,
        distribution="loud",
    )
    with pytest.warns(UserWarning, match="observer loud failed and is ignored"):
        observers.notify(StageEvent("edge", "start"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        observers.notify(StageEvent("edge", "finish"))
    assert sys.modules["quiet_plugin"].heard == [1, 1]
    assert observers.ask_observers("conformance_cases", backend="x") == [["x-case"]]


@pytest.mark.parametrize(
    ("allowed", "imported"),
    [("other", []), ("", []), ("loud", ["loud"]), ("good,other", ["quiet"]), ("good, loud", ["loud", "quiet"])],
)
def test_only_observers_that_are_allowed_or_belong_to_an_allowed_backend_are_imported(
    allowed: str, imported: list[str], install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install_plugin("quiet", OBSERVER.format(argument="", action="heard.append(1)"), distribution="quiet")
    (folder / "quiet-1.2.dist-info" / "entry_points.txt").write_text(
        f"[{OBSERVER_GROUP}]\nquiet = quiet_plugin\n[delegatekit.backends]\ngood = quiet_good_plugin\n"
    )
    install_plugin(
        "loud", OBSERVER.format(argument="", action="heard.append(1)"), group=OBSERVER_GROUP, distribution="loud"
    )
    monkeypatch.setenv(ALLOW_LIST, allowed)
    discovery.refresh()
    observers.notify(StageEvent("edge", "start"))
    assert sorted(name for name in ("loud", "quiet") if f"{name}_plugin" in sys.modules) == imported


def test_an_observer_does_not_come_with_a_backend_that_two_distributions_claim(
    install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("good")
    folder = install_plugin("sly", OBSERVER.format(argument="", action="heard.append(1)"), distribution="sly")
    (folder / "sly-1.2.dist-info" / "entry_points.txt").write_text(
        f"[{OBSERVER_GROUP}]\nsly = sly_plugin\n[delegatekit.backends]\ngood = sly_plugin\n"
    )
    monkeypatch.setenv(ALLOW_LIST, "good")
    discovery.refresh()
    observers.notify(StageEvent("edge", "start"))
    assert "sly_plugin" not in sys.modules


def test_an_observer_that_cannot_be_imported_is_reported(install_plugin: Any) -> None:
    install_plugin("odd", "raise SystemExit(1)", group=OBSERVER_GROUP, distribution="odd")
    with pytest.warns(UserWarning, match="observer odd could not be loaded"):
        observers.notify(StageEvent("edge", "start"))


def test_a_removed_observer_hears_nothing_more() -> None:
    from delegatekit_api import hookimpl

    class Counter:
        heard = 0

        @hookimpl
        def on_stage(self) -> None:
            self.heard += 1

    counter = Counter()
    remove = observers.add_observer(counter)
    observers.notify(StageEvent("edge", "start"))
    remove()
    remove()
    observers.notify(StageEvent("edge", "finish"))
    assert counter.heard == 1


def test_observers_hear_the_stages_of_a_lowering() -> None:
    import torch

    import delegatekit
    from delegatekit_api import hookimpl

    class Recorder:
        def __init__(self) -> None:
            self.heard: list[StageEvent] = []

        @hookimpl
        def on_stage(self, event: StageEvent) -> None:
            self.heard.append(event)

    recorder = Recorder()
    remove = observers.add_observer(recorder)
    try:
        _ = delegatekit.lower(torch.nn.Linear(2, 2), (torch.ones(1, 2),), backends=[]).buffer
    finally:
        remove()
    started = [event.stage for event in recorder.heard if event.kind == "start"]
    finished = [event.stage for event in recorder.heard if event.kind == "finish"]
    assert started == finished
    assert {"export", "edge", "partition", "emit"} <= set(started)
    assert all(event.method == "forward" for event in recorder.heard if event.stage == "edge")
    assert all(event.cpu_seconds >= 0 for event in recorder.heard)


def test_finding_backends_does_not_import_torch(install_plugin: Any) -> None:
    folder: Path = install_plugin("good")
    code = "import sys, delegatekit; print(delegatekit.backends()['good'].usable, 'torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(folder), ALLOW_LIST: "good"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.split() == ["True", "False"]


NEEDS = "Requires-Dist: delegatekit-api>=0.1\nRequires-Dist: delegatekit-toolkit>=7\nRequires-Dist: elsewhere>=9\n"


def test_a_plugin_beside_releases_that_it_does_not_declare_is_told_and_still_works(install_plugin: Any) -> None:
    install_plugin("ahead", metadata=NEEDS)
    with pytest.warns(PluginWarning) as caught:
        assert listed("ahead").usable
    (told,) = [str(item.message) for item in caught]
    assert re.fullmatch(
        r"backend ahead \(delegatekit-ahead\): needs delegatekit-toolkit>=7: delegatekit-toolkit is [\d.]+, not >=7: "
        r"a plugin beside .* goes in plugin API 3\.0: use releases that fit: pip install -U",
        told,
    )


def test_and_is_refused_from_the_version_on_that_the_table_says(
    install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delegatekit_api._deprecations.API_VERSION", ApiVersion(3, 0))
    install_plugin("ahead", metadata=NEEDS)
    assert listed("ahead").status == "broken"
    assert "delegatekit-toolkit is" in listed("ahead").reason and "pip install -U" in listed("ahead").reason
