"""Workers are forked from a warm server that has loaded no backend, and in which no thread can have left a lock."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from delegatekit_conformance.runner import fork

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are spawned elsewhere")

#: Modules that a worker must have at once, and those that no server may have: a worker loads them as a user does.
COMMON = (
    "torch",
    "torch.export",
    "hypothesis",
    "delegatekit.pipeline",
    "delegatekit_conformance.cases.operators",
)
PLUGINS = ("delegatekit_xnnpack", "delegatekit_reference", "delegatekit_ethosu", "executorch")


def _tell(path: str) -> None:
    """Print the modules of a forked process: runs in it."""
    modules = [name for name in (*COMMON, *PLUGINS) if name in sys.modules]
    facts = {
        "modules": modules,
        "threads": [fork.threads(os.getpid()), fork.threads(os.getppid())],
        "torch": sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0,
        "server": os.getppid(),
    }
    Path(path).write_text(json.dumps(facts))


def test_workers_start_with_what_all_backends_need_from_a_server_with_one_thread(tmp_path: Path) -> None:
    servers = set()
    for number in range(2):
        path = tmp_path / str(number)
        process = fork.starter().Process(target=_tell, args=(str(path),))
        process.start()
        process.join()
        facts = json.loads(path.read_text())
        assert tuple(facts["modules"]) == COMMON
        assert facts["threads"] == [1, 1] and facts["torch"] == 1
        servers.add(facts["server"])
    assert len(servers) == 1 and os.getpid() not in servers


def test_where_the_server_has_threads_workers_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork, "_tell_threads_of_server", _two)
    assert fork.starter.__wrapped__().get_start_method() == "spawn"


def _two() -> None:
    os._exit(2)
