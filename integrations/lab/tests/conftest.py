"""Fixtures: certificates, a scripted backend, and boards that serve it in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_files import Files, Serve
from scripted import SOURCE

from delegatekit.plugins.apart import end_all
from delegatekit_lab.addresses import Certificates
from delegatekit_lab.certificates import make
from delegatekit_lab.server import Board, Server, serve_in_thread


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("lab")
    make(folder, boards=["board=localhost,127.0.0.1"], users=["anna", "bert"])
    return Files(folder)


@pytest.fixture(scope="session")
def others(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Of another CA."""
    folder = tmp_path_factory.mktemp("other")
    make(folder, boards=["board=localhost,127.0.0.1"], users=["anna"])
    return Files(folder)


@pytest.fixture
def install(install_plugin: Any) -> Callable[..., None]:
    """Installs the scripted backend."""

    def installed(available: str = "pass", create: str = "pass", described: str = "") -> None:
        install_plugin("test", SOURCE.format(available=available, create=create, described=described))

    return installed


@pytest.fixture
def demo(from_source: Any) -> Iterator[str]:
    """The example backend, which adds and multiplies: its name."""
    with from_source(Path(__file__).parents[3] / "examples" / "minimal_backend"):
        yield "demo"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Serves a board in this process and returns its address."""
    monkeypatch.setenv("DELEGATEKIT_LAB_LEASE", "this")
    monkeypatch.setenv("DELEGATEKIT_LAB_WAIT", "2")
    ends = []

    def served(certificates: Certificates | None = None, *, kind: type[Server] = Server, **more: Any) -> str:
        server = kind(Board(**{"backend": "test", "name": "board-1", **more}), "127.0.0.1", 0, certificates)
        ends.append(serve_in_thread(server))
        return f"{'tls' if certificates else 'tcp'}://127.0.0.1:{server.port}"

    yield served
    end_all()
    for end in ends:
        end()
