"""`delegatekit serve-device`: serve the runtime of a backend of this machine to users of other machines."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from delegatekit.cli import usage


def serve_device(
    backend: Annotated[str, typer.Option("--backend", "-b", metavar="NAME", help="An installed backend.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 is a free one.")],
    cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The board's certificate, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate.")] = None,
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="The CA that signs users' certificates.")] = None,
    name: Annotated[str, typer.Option(help="The board's name, for people; else the host's.")] = "",
    limit_bytes: Annotated[
        int, typer.Option(min=1024, help="Bytes of one message, and of the tensors of one delegate.")
    ] = 1 << 30,
    time_limit: Annotated[
        float, typer.Option(min=0.1, max=86400, metavar="SECONDS", help="End a request that takes longer.")
    ] = 120.0,
    idle: Annotated[
        float,
        typer.Option(min=1, max=86400, metavar="SECONDS", help="Close a connection that asks nothing for so long."),
    ] = 600.0,
) -> None:
    """Serve the runtime of a backend of this machine: users reach it by --device tls://HOST:PORT.

    The runtime is in a process of its own, which may crash. One user at a time has the board. Without certificates,
    only users of this machine are served.
    """
    import logging
    import socket

    from ..addresses import Certificates
    from ..server import Board, Server

    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        usage(f"--listen {listen!r} is not of the form HOST:PORT")
    certificates = Certificates.of(
        {"cert": cert, "key": key, "ca": ca}, {"cert": "--cert", "key": "--key", "ca": "--ca"}
    )
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    board = Board(backend, name or socket.gethostname(), limit_bytes, time_limit, idle)
    server = Server(board, host.strip("[]"), int(port), certificates)
    signal.signal(signal.SIGTERM, lambda number, frame: server.close())
    logging.info(
        "%s serves backend %s at %s://%s:%d", board.name, backend, "tls" if certificates else "tcp", host, server.port
    )
    try:
        server.serve()
    finally:
        server.close()
