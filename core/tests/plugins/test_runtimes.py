"""The availability of backends' runtimes: from metadata at once, and even from those that hang or crash."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile import DESCRIBED, RUNTIME

from delegatekit.plugins import discovery
from delegatekit.plugins.runtimes import CheckedBackend, check_backends, expected_runtime
from delegatekit_api import Availability

ODD = DESCRIBED + RUNTIME


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ("Provides-Extra: runtime\n", ""),
        ("Provides-Extra: runtime\nRequires-Dist: pytest>=1; extra == 'runtime'\n", ""),
        ("Provides-Extra: runtime\nRequires-Dist: nobody-has-it; extra == 'docs'\n", ""),
        ("Provides-Extra: runtime\nRequires-Dist: nobody-has-it; python_version < '3'\n", ""),
        ("", "no extra 'runtime'"),
        ("Provides-Extra: docs\n", "no extra 'runtime'"),
        (
            "Provides-Extra: runtime\nRequires-Dist: nobody-has-it; extra == 'runtime'\n",
            "nobody-has-it is not installed: pip install 'delegatekit-odd[runtime]'",
        ),
        ("Provides-Extra: runtime\nRequires-Dist: nobody-has-it\n", "nobody-has-it is not installed"),
        ("Provides-Extra: runtime\nRequires-Dist: pytest<1; extra == 'runtime'\n", "not <1"),
        ("Provides-Extra: runtime\nRequires-Dist: pytest ~ 1\n", "cannot be read: InvalidRequirement"),
    ],
)
def test_what_a_runtime_needs_is_told_by_metadata(metadata: str, reason: str, install_plugin: Any) -> None:
    install_plugin("odd", "raise RuntimeError('imported')", metadata=metadata)
    answer = expected_runtime(discovery.backends(check=False)["odd"])
    assert answer.available is (reason == "")
    assert reason in answer.reason


def checked(seconds: float = 60) -> CheckedBackend:
    (result,) = check_backends([discovery.backends(check=False)["odd"]], seconds=seconds).values()
    return result


def test_a_backend_says_itself_whether_it_runs_here(install_plugin: Any) -> None:
    install_plugin("odd", ODD.format(answer="print('printed'); return Availability(False, 'no device')"))
    result = checked()
    assert (result.info.status, result.info.delegate_id) == ("ready", "OddBackend")
    assert result.runtime is not None
    assert (result.runtime.available, result.runtime.reason) == (False, "no device")
    assert result.compiler is not None and result.compiler.available, "nothing is missing, as far as is known"


COMPILER = (
    DESCRIBED
    + RUNTIME.format(answer="return Availability(True)")
    + """
@hookimpl
def compiler_availability(options): {answer}
"""
)


def test_a_backend_says_itself_whether_it_compiles_here(install_plugin: Any) -> None:
    install_plugin("odd", COMPILER.format(answer="return Availability(False, 'no tool: pip install tool')"))
    result = checked()
    assert result.info.status == "ready"
    assert result.compiler is not None and result.runtime is not None
    assert (result.compiler.reason, result.runtime.available) == ("no tool: pip install tool", True)


def test_a_backend_that_dies_when_it_is_asked_about_its_compiler_is_told(install_plugin: Any) -> None:
    install_plugin("odd", COMPILER.format(answer="import os; os.abort()"))
    result = checked()
    assert (result.info.status, result.runtime) == ("ready", None)
    assert result.compiler is not None
    assert "asking about its compiler crashed (SIGABRT)" in result.compiler.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os.abort()", "importing it crashed (SIGABRT)"),
        ("import os; os._exit(3)", "importing it ended the process with exit code 3"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
    ],
)
def test_a_backend_that_ends_the_process_is_broken(source: str, reason: str, install_plugin: Any) -> None:
    install_plugin("odd", source)
    result = checked()
    assert (result.info.status, result.runtime) == ("broken", None)
    assert reason in result.info.reason


@pytest.mark.parametrize(
    ("answer", "seconds", "reason"),
    [
        ("import os; os.kill(os.getpid(), 11)", 60, "asking its runtime crashed (SIGSEGV)"),
        ("import sys; print('licence server?', file=sys.stderr, flush=True); import os; os._exit(7)", 60, "licence"),
        ("import os; os.fork(); import time; time.sleep(600)", 10, "took longer than 10 s and was stopped"),
    ],
)
def test_a_runtime_that_crashes_or_hangs_is_told(answer: str, seconds: float, reason: str, install_plugin: Any) -> None:
    install_plugin("odd", ODD.format(answer=answer))
    result = checked(seconds)
    assert result.info.status == "ready"
    assert result.runtime is not None and not result.runtime.available
    assert reason in result.runtime.reason


def test_backends_of_one_distribution_are_told_apart(install_plugin: Any) -> None:
    folder = install_plugin("odd", COMPILER.format(answer="import os; os.abort()"))
    (points,) = folder.glob("*.dist-info/entry_points.txt")
    for name in ("prime", "square"):
        source = ODD.format(answer=f"return Availability(False, 'no {name}')").replace("odd", name).replace("Odd", name)
        (folder / f"{name}_plugin.py").write_text(source)
        points.write_text(f"{points.read_text()}{name} = {name}_plugin\n")
    discovery.refresh()
    found = check_backends([info for info in discovery.backends(check=False).values() if "odd" in info.distribution])
    assert {name: item.info.status for name, item in found.items()} == dict.fromkeys(
        ("odd", "prime", "square"), "ready"
    )
    compiler = found["odd"].compiler
    assert compiler is not None and "asking about its compiler crashed (SIGABRT)" in compiler.reason
    assert [str(found[name].runtime) for name in ("prime", "square")] == [
        str(Availability(False, f"no {name}")) for name in ("prime", "square")
    ]


def test_a_backend_that_hangs_when_it_is_imported_is_broken(install_plugin: Any) -> None:
    install_plugin("odd", "import time; time.sleep(600)")
    assert checked(1).info.reason == "importing it took longer than 1 s and was stopped"


def test_fifty_backends_are_listed_in_little_time_and_none_is_imported(
    tmp_path: Path, write_plugin: Callable[..., Any]
) -> None:
    for number in range(50):
        metadata = "Provides-Extra: runtime\nRequires-Dist: pytest; extra == 'runtime'\n"
        write_plugin(tmp_path / "site", f"p{number}", "raise RuntimeError('imported')", metadata=metadata)
    code = (
        "import sys, time\n"
        "import delegatekit_api  # tests/test_borders.py measures it\n"
        "from importlib.metadata import distributions\n"
        "times = [time.process_time()]\n"
        "from delegatekit.plugins import backends\n"
        "found = backends(check=False)\n"
        "times.append(time.process_time())\n"
        "everything = [(item.metadata['Name'], item.requires, item.entry_points) for item in distributions()]\n"
        "times.append(time.process_time())\n"
        "imported = [name for name in sys.modules if name == 'torch' or name.endswith('_plugin')]\n"
        "print(sum(info.distribution == f'delegatekit-{name}' for name, info in found.items()), imported)\n"
        "print((times[1] - times[0]) / (times[2] - times[1]))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), *sys.path])}
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        for _ in range(5)
    ]
    answers = [run.stdout.split() for run in runs]
    assert {(int(count) >= 50, imported) for count, imported, _ in answers} == {(True, "[]")}
    # Less than the time that Python itself needs to read the metadata, with half as much to spare.
    assert min(float(ratio) for _, _, ratio in answers) < 1.5
