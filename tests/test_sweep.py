"""Sweeps over installed backends: rows, targets, schemes, resuming, processes that die, clusters, the command."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import Row
from delegatekit.plugins import get_backend
from delegatekit_api import DelegateKitError, LoweringError, OptionError
from delegatekit_toolkit.json_text import plain
from delegatekit_tools.sweep import runners
from delegatekit_tools.sweep.jobs import planned


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        self.say = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.say(self.look(x).mean((2, 3))).atan()


torch.manual_seed(0)
MODEL, X = Net().eval(), (torch.randn(1, 3, 8, 8),)

#: The models of the command.
MODELS = """
import torch
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval(), (torch.ones(1, 4),)
"""


def test_a_row_tells_what_a_backend_makes_of_the_model() -> None:
    found = delegatekit.sweep(MODEL, X, backends=["xnnpack", "ethosu"], targets=["ethos-u55-64"], runs=3)
    float_row, quantized = found.rows
    assert (float_row.backend, float_row.target, float_row.scheme) == ("xnnpack", "default", "float")
    assert float_row.outcome == quantized.outcome == "compiles"
    assert [item.operator for item in float_row.left_out] == ["aten.atan.default"] and float_row.left_out[0].reason
    assert float_row.sqnr is not None and float_row.sqnr > 100 and float_row.runs == 3
    assert float_row.wall_seconds and float_row.cpu_seconds and float_row.estimated_seconds is None
    program = delegatekit.lower(MODEL, X, backends=["xnnpack"])
    assert float_row.file_size == len(program.buffer)
    # Ethos-U takes nothing of it in float: it is quantized.
    assert (quantized.target, quantized.scheme) == ("ethos-u55-64", "int8")
    assert quantized.estimated_seconds and quantized.estimated_memory["sram"] and "Vela" in quantized.estimated_by
    assert quantized.sqnr is not None and 15 < quantized.sqnr < 80
    assert [(item.name, item.dtype) for item in quantized.outputs] == [("forward", "float32")]
    assert quantized.cosine is not None and 0.99 < quantized.cosine <= 1


def test_schemes_and_targets_make_rows() -> None:
    backends, schemes = ["xnnpack", "vulkan"], ["xnnpack=float", "xnnpack=int8-dynamic"]
    jobs, broken = planned(backends, ["phone-small", "vulkan=desktop"], {}, schemes, "content", 1)
    assert not broken and len({job.key for job in jobs}) == 3
    assert [(job.backend, job.target, job.scheme) for job in jobs] == [
        ("xnnpack", "default", "float"),
        ("xnnpack", "default", "int8-dynamic"),
        ("vulkan", "desktop", "auto"),
    ]
    everywhere, _ = planned(["vulkan"], ["all"], {}, [], "content", 1)
    assert [job.target for job in everywhere] == [item.name for item in get_backend("vulkan").targets()]
    assert planned(["vulkan"], ["all"], {}, [], "other", 1)[0][0].key != everywhere[0].key


@pytest.mark.slow
def test_a_sweep_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_one(jobs: Any, *more: Any) -> Any:
        yield next(real(jobs[:1], *more))
        raise KeyboardInterrupt

    def forbidden(*given: Any) -> Any:
        raise DelegateKitError("makes rows")

    real = runners.run_here
    given: dict[str, Any] = {"backends": ["xnnpack", "reference"], "results": tmp_path / "r.jsonl", "runs": 1}
    with monkeypatch.context() as patch:
        patch.setattr(_module("sweep"), "run_here", first_one)
        with pytest.raises(KeyboardInterrupt):
            delegatekit.sweep(MODEL, X, **given)
    made: list[Row] = []
    found = delegatekit.sweep(MODEL, X, **given, each=made.append)
    assert [row.backend for row in found.rows] == ["xnnpack", "reference"]
    assert [row.backend for row in made] == ["reference"]
    monkeypatch.setattr(_module("sweep"), "run_here", forbidden)
    assert delegatekit.sweep(MODEL, X, **given) == found
    other = (torch.randn(1, 3, 8, 8),)
    with pytest.raises(DelegateKitError, match="makes rows"):  # other inputs are another sweep
        delegatekit.sweep(MODEL, other, **given)


BAD_PLUGIN = """
import os, signal, time
from delegatekit_api import *

class Takes:
    def keep_operators(self): return []
    def check(self, call): return Verdict.yes()
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("{name}", "{name}Backend", "delegatekit-{name}", "1.2", "a bad backend")

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options):
    {does}
"""


@pytest.mark.slow
def test_bad_backends_do_not_stop_others(install_plugin: Callable[..., Any]) -> None:
    for name, does in (
        ("dies", "os.kill(os.getpid(), signal.SIGSEGV)"),
        ("raises", "raise ValueError('out of luck')"),
        ("sleeps", "time.sleep(1000)"),
    ):
        install_plugin(name, BAD_PLUGIN.replace("{name}", name).replace("{does}", does))
    install_plugin("broken", "raise RuntimeError('no import')")
    backends = ["dies", "raises", "sleeps", "broken", "xnnpack"]
    start = time.monotonic()
    rows = {row.backend: row for row in delegatekit.sweep(MODEL, X, backends=backends, time_limit=15, runs=1).rows}
    assert time.monotonic() - start < 60
    assert list(rows) == backends
    assert rows["xnnpack"].outcome == "compiles"
    assert rows["dies"].outcome == "failed" and "SIGSEGV" in rows["dies"].reason
    assert rows["raises"].outcome == "refused" and "out of luck" in rows["raises"].reason
    assert rows["sleeps"].outcome == "failed" and "15 s" in rows["sleeps"].reason
    assert rows["broken"].outcome == "failed" and "no import" in rows["broken"].reason


def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    jobs = _jobs()
    running = runners.run_here(jobs, _files(), 100.0, 1)
    next(running)
    assert (started := _started())
    running.close()
    assert not any(child.is_running() for child in started)


@pytest.mark.slow
def test_a_row_is_made_on_a_worker_of_a_cluster() -> None:
    (job, *_) = _jobs()
    assert Row.from_json(runners.make_on_worker(plain(job), _files(), 100.0)).outcome == "compiles"


@pytest.mark.slow
def test_a_dask_cluster_makes_the_rows() -> None:
    from distributed import LocalCluster

    resources = {"xnnpack": 1, "reference": 1}
    with LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=1, threads_per_worker=2, processes=False, resources=resources, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        found = delegatekit.sweep(MODEL, X, backends=["xnnpack", "reference"], scheduler=address, runs=1)
        assert [row.outcome for row in found.rows] == ["compiles", "compiles"]


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegatekit_toolkit.cluster.PATIENCE", 1.0)
    with pytest.raises(OptionError, match="the Dask scheduler does not answer"):
        delegatekit.sweep(MODEL, X, backends=["xnnpack"], scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backends": []}, "is no list of names"),
        ({"backends": ["nobody"]}, "nobody"),
        ({"targets": ["ethos-u55"]}, "no backend of the sweep has a target 'ethos-u55'.*did you mean ethos-u55-"),
        ({"targets": ["coreml=ios17"]}, "'coreml' is not among the backends"),
        ({"schemes": ["loud"]}, "no scheme 'loud'"),
        ({"options": {"ethosu": {"target": "ethos-u55-64"}}, "targets": ["all"]}, "and target ethos-u55-32 sets it"),
        ({"options": {"ethosu": {"loud": 1}}}, "loud"),
        ({"runs": 0}, "runs=0"),
    ],
)
def test_what_is_not_there_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(DelegateKitError, match=f"(?s){message}"):
        delegatekit.sweep(MODEL, X, **{"backends": ["ethosu"], **given})


@pytest.mark.slow
def test_a_scheme_that_cannot_be_is_a_row_with_a_reason() -> None:
    exported = torch.export.export(MODEL, X, strict=False)
    given = {"first": exported, "second": exported}
    found = delegatekit.sweep(given, backends=["xnnpack", "ethosu"], schemes=["xnnpack=int8"], runs=1)
    assert [row.outcome for row in found.rows] == ["refused", "takes nothing"]
    assert "models of one method" in found.rows[0].reason
    assert "not quantized: a scheme is for models of one method" in found.rows[1].reason
    with pytest.raises(LoweringError, match="samples are for models of one method"):
        delegatekit.sweep(given, backends=["xnnpack"], samples=[X])


def test_the_command_writes_table_page_and_json(command: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"")
    torch.save([(torch.randn(1, 4),), (torch.randn(1, 4),)], tmp_path / "x.pt")
    arguments = ("sweep", "models:make", "-b", "xnnpack,reference", "--samples", "x.pt", "--results", "r.jsonl")
    told = command(*arguments, "--html", "s.html")
    assert "wrote s.html" in told.out and "xnnpack" in told.out and "compiles" in told.err
    assert "models:make on xnnpack, reference" in (tmp_path / "s.html").read_text()
    rows = json.loads(command(*arguments, "--json").out)
    assert [row["backend"] for row in rows] == ["xnnpack", "reference"] and rows[0]["outcome"] == "compiles"
    assert "--retry is for" in command("sweep", "models:make", "-b", "xnnpack", "--retry", code=2).err


def test_tune_and_lower_by_command(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = command("tune", "models:make", "-b", "xnnpack,reference", "-o", "m.json", "--runs", "2", "--units")
    assert "wrote m.json" in told.out and "xnnpack alone" in told.out and "aten.linear" in told.out
    assert "tuned in" in told.err
    for name in ("a.pte", "b.pte"):
        command("lower", "models:make", "-b", "auto", "--measurements", "m.json", "-o", name)
    assert (tmp_path / "a.pte").read_bytes() == (tmp_path / "b.pte").read_bytes()
    told = command("lower", "models:make", "-b", "auto,xnnpack", "-o", "c.pte")
    assert "the model is tuned first" in told.err and "tuned in" in told.err
    assert "in executorch 1." in told.err and "runtime alone" in told.err  # the table
    assert "xnnpack runs 2 of 2" in told.out or told.out.startswith("nothing is delegated: ")
    wrong = command("lower", "models:make", "-b", "xnnpack", "--measurements", "m.json", code=2)
    assert "--measurements is for -b auto" in wrong.err
    assert "neither wall nor CPU" in command("tune", "models:make", "-b", "auto", "--clock", "sun", code=2).err
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "reference")
    alone = command("tune", "models:make", "-b", "auto", "-o", "all.json", "--runs", "1")
    assert "reference alone" in alone.out and "xnnpack" not in alone.out
    monkeypatch.delenv("DELEGATEKIT_BACKENDS")
    (tmp_path / "m.json").write_text("{}")
    assert "holds no measurements" in command("tune", "models:make", "-b", "xnnpack", "-o", "m.json", code=1).err


def _module(name: str) -> Any:
    return sys.modules[f"delegatekit_tools.sweep.{name}"]


def _material() -> Any:
    from delegatekit_tools.sweep.material import Material

    return Material({"forward": torch.export.export(MODEL, X, strict=False)}, {"forward": [(X, {})]}, [X])


def _files() -> Any:
    return _material().files()


def _jobs() -> Any:
    return planned(["xnnpack", "reference"], [], {}, [], "content", 1)[0]


def _started() -> list[psutil.Process]:
    """The processes of a sweep that this one has started, as soon as there is one."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        if found := [
            child for child in psutil.Process().children() if "delegatekit_tools.sweep.worker" in child.cmdline()
        ]:
            return found
        time.sleep(0.01)
    return []
