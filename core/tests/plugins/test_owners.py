"""Two plugins with one delegate id: the plugin that made a delegate runs it, or the one that the user chooses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch

import delegatekit
from delegatekit.engine import LoadedProgram
from delegatekit.plugins import discovery, get_backend
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit_api import NamedData, PluginError, RuntimeUnavailableError

#: A backend whose delegates multiply by a factor of its own.
MULTIPLIER = """
from delegatekit_api import *

class Runtime:
    def is_available(self): return Availability(True)
    def init(self, payload): pass
    def execute(self, handle, inputs, outputs): outputs[0].copy_(inputs[0] * {factor})
    def destroy(self, handle): pass

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "Test", "{distribution}", "1.2", "x")

@hookimpl
def create_runtime(): return Runtime()
"""

X = torch.arange(5.0)


@pytest.fixture
def two(install_plugin: Any) -> Any:
    """The backends "alpha", of Acme_Alpha, which doubles, and "beta", of acme-beta, which triples."""
    for name, distribution, factor in (("alpha", "Acme_Alpha", 2), ("beta", "acme-beta", 3)):
        source = MULTIPLIER.format(name=name, distribution=distribution, factor=factor)
        install_plugin(name, source, distribution=distribution)
    return install_plugin


def program(*owners: str) -> bytes:
    """x through a delegate of each owner; "" is an owner that the file does not name."""
    values = [handmade.tensor([5], 64 * index) for index in range(len(owners) + 1)]
    place = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0)
    delegates = [schema.BackendDelegate("Test", place, []) for _ in owners]
    steps = [schema.DelegateCall(index, [index, index + 1]) for index in range(len(owners))]
    plan = handmade.plan(values, [0], [len(owners)], steps, delegates=delegates, non_const_buffer_sizes=[0, 512])
    named = [
        {"method": "forward", "index": index, "outputs": 1, "distribution": owner, "version": "1.2", "api": "2.0"}
        for index, owner in enumerate(owners)
        if owner
    ]
    manifest = NamedData("delegatekit.manifest", json.dumps({"producer": "test", "delegates": named}).encode())
    return to_bytes(PteImage((plan,), delegate_blobs=(b"blob",), named_data=(manifest,)))


def factor(loaded: LoadedProgram) -> float:
    """The program's multiplier."""
    return float(loaded["forward"](X)[1])


def test_the_plugin_that_made_a_delegate_runs_it(two: Any) -> None:
    assert factor(delegatekit.load(program("acme-alpha"))) == 2
    assert factor(delegatekit.load(program("acme-beta"))) == 3
    assert factor(delegatekit.load(program("acme.beta", "ACME-alpha", "acme-beta"))) == 18


def test_a_file_that_names_no_owner_is_refused_where_two_could_run_it(two: Any) -> None:
    with pytest.raises(RuntimeUnavailableError) as caught:
        factor(delegatekit.load(program("")))
    assert "alpha (Acme_Alpha) and beta (acme-beta) all run delegates of id 'Test'" in caught.value.what
    assert caught.value.where == "method forward, delegate Test"
    assert "--backend alpha" in str(caught.value.hint) and "load(..., backends=['alpha'])" in str(caught.value.hint)


@pytest.mark.parametrize("owners", [("",), ("acme-alpha",), ("not-installed",)])
def test_the_users_choice_comes_first(owners: tuple[str, ...], two: Any) -> None:
    assert factor(delegatekit.load(program(*owners), backends=["beta"])) == 3
    assert factor(delegatekit.load(program(*owners), backends=["beta", "alpha"])) == 3
    assert factor(delegatekit.load(program(*owners), backends=["alpha"])) == 2


def test_one_plugin_runs_what_names_no_owner(install_plugin: Any) -> None:
    install_plugin("alpha", MULTIPLIER.format(name="alpha", distribution="alpha", factor=2), distribution="alpha")
    assert factor(delegatekit.load(program(""))) == 2


def test_what_another_plugin_made_is_not_taken_over(install_plugin: Any) -> None:
    install_plugin("alpha", MULTIPLIER.format(name="alpha", distribution="alpha", factor=2), distribution="alpha")
    with pytest.raises(RuntimeUnavailableError, match=r"not-there made this, and it is not installed; alpha") as caught:
        factor(delegatekit.load(program("not-there")))
    assert str(caught.value.hint).startswith("pip install not-there, or choose another: `--backend alpha`")


def test_an_owner_that_is_out_of_order_is_named_with_its_reason(two: Any) -> None:
    two("gamma", "raise ValueError('no licence')", distribution="acme-gamma")
    with pytest.raises(RuntimeUnavailableError, match=r"its backend gamma is broken: .*no licence"):
        factor(delegatekit.load(program("acme-gamma")))


def test_two_backends_of_the_owner_need_the_users_choice(two: Any) -> None:
    folder = two("first", "", distribution="both")
    for name, number in (("first", 5), ("second", 7)):
        source = MULTIPLIER.format(name=name, distribution="both", factor=number)
        (folder / f"both_{name}_plugin.py").write_text(source)
    (info,) = folder.glob("*.dist-info")
    lines = [f"{name} = both_{name}_plugin\n" for name in ("first", "second")]
    (info / "entry_points.txt").write_text("[delegatekit.backends]\n" + "".join(lines))
    discovery.refresh()
    with pytest.raises(RuntimeUnavailableError, match=r"first \(both\) and second \(both\) all run"):
        factor(delegatekit.load(program("both")))
    assert factor(delegatekit.load(program("both"), backends=["second"])) == 7


@pytest.mark.parametrize(
    ("backends", "reason"),
    [
        (["absent"], "no backend 'absent' is installed"),
        (["Alpha"], "did you mean 'alpha'"),
        (["other"], "backend other: runs delegates of id otherBackend: those of the file are of Test"),
        ("alpha", "is a string"),
    ],
)
def test_a_choice_that_cannot_be_meant_is_refused_at_once(backends: Any, reason: str, two: Any) -> None:
    two("other")
    with pytest.raises(PluginError, match=reason):
        delegatekit.load(program(""), backends=backends)


def test_the_command_line_has_the_choice(
    two: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from delegatekit.cli import main

    (tmp_path / "m.pte").write_bytes(program(""))
    codes = {}
    for more in ([], ["--backend", "beta"], ["-b", "Beta"]):
        monkeypatch.setattr("sys.argv", ["delegatekit", "run", str(tmp_path / "m.pte"), *more])
        with pytest.raises(SystemExit) as end:
            main()
        codes[tuple(more)] = end.value.code, " ".join(capsys.readouterr().err.split())
    assert codes[()][0] == 1 and "alpha (Acme_Alpha) and beta (acme-beta)" in codes[()][1]
    assert codes["--backend", "beta"] == (0, "")
    assert codes["-b", "Beta"][0] == 2 and "did you mean 'beta'?" in codes["-b", "Beta"][1]


def test_typing_errors_get_the_installed_name_and_never_an_invented_package(two: Any) -> None:
    for wrong, meant in (("ALPHA", "alpha"), ("apha", "alpha"), ("betta", "beta"), ("delegatekit-beta", "beta")):
        with pytest.raises(PluginError) as caught:
            delegatekit.lower(torch.nn.ReLU(), (X,), backends=[wrong])
        assert caught.value.hint == f"did you mean {meant!r}?"
    for strange in ("zzzzzz", "", "pip install x", 7, None):
        with pytest.raises(PluginError) as caught:
            delegatekit.lower(torch.nn.ReLU(), (X,), backends=[strange])  # type: ignore[list-item]
        assert "pip install delegatekit" not in str(caught.value)


def test_a_second_claim_to_the_owners_name_does_not_take_its_files_away(two: Any) -> None:
    two("alpha", "raise ValueError('never imported')", distribution="someone-elses")
    assert factor(delegatekit.load(program("acme-alpha"))) == 2


def test_a_name_that_two_claim_is_explained_where_a_file_names_no_owner(install_plugin: Any) -> None:
    for distribution in ("acme", "someone-elses"):
        source = MULTIPLIER.format(name="alpha", distribution=distribution, factor=2)
        install_plugin("alpha", source, distribution=distribution)
    with pytest.raises(RuntimeUnavailableError) as caught:
        factor(delegatekit.load(program("")))
    assert "alpha is duplicate" in caught.value.what and "both claim this name: uninstall one" in caught.value.what
    assert "acme 1.2" in caught.value.what and "someone-elses 1.2" in caught.value.what


def test_only_the_owners_plugin_is_imported(two: Any) -> None:
    import sys

    two("other", "raise SystemExit('was imported')", distribution="other")
    assert factor(delegatekit.load(program("acme-alpha"))) == 2
    assert "Acme_Alpha_plugin" in sys.modules
    assert not {"acme_beta_plugin", "other_plugin"} & set(sys.modules)


ANOTHER = """
from delegatekit_api import BackendDescription, hookimpl

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "Test", "{distribution}", "1.2", "x", runs_any_maker=False)
"""


def test_a_plugin_without_a_runtime_leaves_its_blobs_to_another_of_its_delegate_id(install_plugin: Any) -> None:
    install_plugin("alpha", MULTIPLIER.format(name="alpha", distribution="alpha", factor=2), distribution="alpha")
    install_plugin("compiler", ANOTHER.format(name="compiler", distribution="compiler"), distribution="compiler")
    assert get_backend("compiler").runtime_availability().available
    assert factor(delegatekit.load(program("compiler"))) == 2
    assert factor(delegatekit.load(program(""))) == 2


def test_a_plugin_without_a_runtime_names_those_that_could_run_its_blobs(two: Any) -> None:
    two("compiler", ANOTHER.format(name="compiler", distribution="compiler"), distribution="compiler")
    reason = get_backend("compiler").runtime_availability().reason
    assert reason.startswith(
        "has no runtime, and alpha (Acme_Alpha) and beta (acme-beta) run delegates of its id: choose"
    )
    assert factor(delegatekit.load(program("compiler"), backends=["beta"])) == 3


def test_a_runtime_for_the_blobs_of_its_maker_leaves_others_to_one_for_any(install_plugin: Any) -> None:
    own = MULTIPLIER.format(name="own", distribution="own", factor=5).replace('"x")', '"x", runs_any_maker=False)')
    install_plugin("own", own, distribution="own")
    assert factor(delegatekit.load(program(""))) == 5
    install_plugin("alpha", MULTIPLIER.format(name="alpha", distribution="alpha", factor=2), distribution="alpha")
    assert factor(delegatekit.load(program(""))) == 2
    assert factor(delegatekit.load(program("own"))) == 5
