"""What comes over the wire and is no message: an error on both sides, after which the server serves others."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from lab_files import Files, Serve

from delegatekit.plugins import discovery
from delegatekit_api import DelegatePayload, ExecutionError, FormatError, TensorSpec
from delegatekit_lab import wire
from delegatekit_lab.server import Session
from delegatekit_lab.wire import ClosedError, Wire

HEAD = struct.Struct("<4sHIQ")
HELLO = {"do": "status", "pieces": []}


def frame(
    header: Any = HELLO, body: bytes = b"", *, version: int = 1, length: int | None = None, size: int | None = None
) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    sizes = (len(text) if length is None else length, len(body) if size is None else size)
    return HEAD.pack(b"DKLB", version, *sizes) + text + body


def use(**more: Any) -> dict[str, Any]:
    return {"do": "use", "backend": "test", "distribution": "delegatekit-test", "lease": "x"} | more


INIT = {
    "do": "init",
    "handle": 1,
    "delegate_id": "Test",
    "keys": [],
    "inputs": [{"dtype": "float32", "shape": [5]}],
    "outputs": [{"dtype": "float32", "shape": [5]}],
    "numbers": [],
    "method": "forward",
    "named": [],
    "gap": 0,
    "pieces": [2],
}
SPEC = [{"dtype": "float32", "shape": [1 << 40]}]


@pytest.fixture
def board(install: Callable[..., None], serve: Serve, caplog: pytest.LogCaptureFixture) -> Iterator[int]:
    """The port of a board without TLS, which must serve at the end as at the beginning."""
    install()
    caplog.set_level(logging.INFO, "delegatekit_lab")
    port = int(serve(limit=1 << 20).rpartition(":")[2])
    yield port
    assert said(port, frame())["board"] == "board-1"


def said(port: int, *sent: bytes, end: bool = False) -> dict[str, Any]:
    """The last answer to bytes that are sent, as many answers as there are parts."""
    with closing(socket.create_connection(("127.0.0.1", port), 20)) as connection:
        other = Wire(connection, "server")
        header: dict[str, Any] = {}
        for data in sent:
            connection.sendall(data)
            if end and data is sent[-1]:
                connection.shutdown(socket.SHUT_WR)
            header = dict(other.receive().header)
        return header


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: board\r\n\r\n", "does not speak DelegateKit's protocol: it begins with b'GET /"),
        (b"\x16\x03\x01\x02\x00" + bytes(60), "does not speak DelegateKit's protocol"),
        (b"\x80\x04\x95" + bytes(40), "does not speak DelegateKit's protocol"),  # a pickle
        (frame(version=2), "speaks version 2 of the protocol, this side version 1"),
        (frame(length=1 << 31), "announces 2,147,483,648 bytes, 4,194,304 are the most"),
        (frame(size=1 << 62), "announces 4,611,686,018,427,387,904 bytes, 1,048,576 are the most"),
        (frame({"do": "status", "pieces": [5]}, b"1234"), "announces pieces of 5 bytes in a body of 4"),
        (frame({"do": "status", "pieces": [-4, 8]}, b"1234"), "announces pieces of 4 bytes in a body of 4"),
        (frame({"do": "status", "pieces": "x"}), "sent a message with wrong pieces"),
        (frame(b"{"), "is not JSON"),
        (frame(b'{"do": "status", "do": "use"}'), "the key 'do' appears twice"),
        (frame(b"[" * 5000), "is not JSON"),
        (frame(b"[]"), "holds a list, not an object"),
        (frame({}), "sent a wrong message hello: has no do"),
        (frame({"do": 1}), "sent a wrong message hello: do is 1, not a text"),
        (frame({"do": "status", "more": 1}), "has the key 'more', which is not known"),
        (frame({"do": "shutdown"}), "wants 'shutdown', which no board does"),
        (frame({"do": "reserve", "seconds": "long"}), "seconds is 'long', not a number"),
        (frame(use(backend="os")), "serves backend test"),
    ],
    ids=range(19),
)
def test_garbage_is_refused_with_an_answer(
    data: bytes, told: str, board: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = said(board, data)
    assert told in answer["error"]["what"]
    assert told in caplog.text


@pytest.mark.parametrize("cut", [1, 17, 20, -1])
def test_a_frame_that_is_cut_off_is_refused(cut: int, board: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = said(board, frame(HELLO | {"pieces": [4]}, b"1234")[:cut], end=True)
    assert "closed the connection in the middle of a message" in answer["error"]["what"]
    assert "in the middle of a message" in caplog.text


def test_a_frame_that_stops_is_refused(board: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "STALL", 0.5)
    assert "stopped in the middle of a message" in said(board, frame()[:20])["error"]["what"]


@pytest.mark.parametrize(
    ("request_", "body", "told"),
    [
        ({"do": "exec"}, b"", "wants 'exec', which no board does"),
        ({"do": ["init"]}, b"", "which no board does"),
        (INIT | {"inputs": [{"dtype": "load", "shape": [1]}]}, b"--", "describes a tensor that cannot be: load"),
        (INIT | {"inputs": [{"dtype": "float32", "shape": [-1]}]}, b"--", "describes a tensor that cannot be"),
        (INIT | {"outputs": SPEC}, b"--", "describes tensors of 4,398,046,511,104 bytes, 1,048,576 are the most"),
        (INIT | {"inputs": [{"dtype": "int8", "shape": [2, 2], "dim_order": [0, 0]}]}, b"--", "that cannot be"),
        (INIT | {"gap": 1 << 50}, b"--", "describes a delegate that cannot be"),
        (INIT | {"keys": ["a"]}, b"--", "describes a delegate that cannot be"),
        (INIT | {"handle": "1"}, b"--", "handle is '1', not a whole number"),
        ({"do": "execute", "handle": 7}, b"", "has no delegate 7 here"),
    ],
    ids=range(10),
)
def test_wrong_requests_reach_no_runtime(request_: dict[str, Any], body: bytes, told: str, board: int) -> None:
    assert told in said(board, frame(use()), frame(request_, body))["error"]["what"]


@pytest.mark.parametrize(
    ("execute", "body", "told"),
    [
        ({"pieces": [19]}, bytes(19), "sent inputs with other bytes than their sizes have"),
        ({"pieces": []}, b"", "sent inputs with other bytes"),
        ({"shapes": [[6], [5]], "pieces": [24]}, bytes(24), "that are larger than the delegate's"),
        ({"shapes": [[5], [-5]], "pieces": [20]}, bytes(20), "that are larger than the delegate's"),
        ({"shapes": [[5]], "pieces": [20]}, bytes(20), "that are larger than the delegate's"),
        ({"handle": 2, "pieces": [20]}, bytes(20), "has no delegate 2 here"),
    ],
    ids=range(6),
)
def test_wrong_calls_of_a_delegate_are_refused(execute: dict[str, Any], body: bytes, told: str, board: int) -> None:
    call = frame({"do": "execute", "handle": 1} | execute, body)
    assert told in said(board, frame(use()), frame(INIT, b"--"), call)["error"]["what"]


# -- TLS -------------------------------------------------------------------------------------------------------------


def reason(address: str) -> str:
    found = discovery.get_backend("test").runtime_availability(apart=address)
    return "" if found.available else found.reason


def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    """True if the server logs a text within some seconds."""
    end = time.monotonic() + 10
    while text not in caplog.text and time.monotonic() < end:
        time.sleep(0.05)
    return text in caplog.text


def test_certificates_of_both_sides_are_checked(
    install: Callable[..., None], serve: Serve, files: Files, others: Files, caplog: pytest.LogCaptureFixture
) -> None:
    install()
    caplog.set_level(logging.INFO, "delegatekit_lab")
    address = serve(files("board"))
    port = int(address.rpartition(":")[2])
    # A user of another CA, who trusts the board; and one who does not.
    mixed = files.query("anna").partition("&ca=")[2]
    foreign = others.query("anna").partition("&ca=")[0]
    assert "does not know the CA that signed this side's certificate" in reason(f"{address}{foreign}&ca={mixed}")
    assert logged(caplog, "refused 127.0.0.1")
    assert logged(caplog, "its certificate is not signed by the CA given here")
    assert "its certificate is not signed by the CA given here" in reason(address + others.query("anna"))
    # No certificate at all, and no TLS.
    context = ssl.create_default_context(cafile=str(files("board").ca))
    caplog.clear()
    secure = context.wrap_socket(socket.create_connection(("127.0.0.1", port), 20), server_hostname="localhost")
    with closing(secure), pytest.raises(ClosedError, match="wants a certificate"):
        Wire(secure, "server").receive()
    assert logged(caplog, "it has no certificate")
    caplog.clear()
    with pytest.raises((ClosedError, FormatError)), closing(socket.create_connection(("127.0.0.1", port), 20)) as plain:
        plain.sendall(frame())
        Wire(plain, "server").receive()
    assert logged(caplog, "it does not speak TLS")
    # The board's name must be in its certificate, and older TLS is not spoken.
    elsewhere = address.replace("127.0.0.1", "127.0.0.2")
    assert reason(elsewhere + files.query("anna"))
    old = files("anna").context(server=False)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with closing(socket.create_connection(("127.0.0.1", port), 20)) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain, server_hostname="localhost")
    assert reason(address + files.query("anna")) == ""


def test_a_board_that_lies_about_the_protocol_is_out_of_reach(install: Callable[..., None]) -> None:
    install()
    answers = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(9),
        frame(version=9),
        frame({"error": {"kinds": 1}}),
        frame({"board": "b", "backend": "test"}),
        frame({"board": "b", "backend": "test", "version": "1", "time_limit": 5})[:-3],
        b"",
    ]
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        for answer in answers:

            def answered(data: bytes = answer) -> None:
                connection, _ = server.accept()
                with closing(connection):
                    Wire(connection, "user").receive()
                    connection.sendall(data)

            thread = threading.Thread(target=answered)
            thread.start()
            told = reason(f"tcp://127.0.0.1:{server.getsockname()[1]}")
            thread.join()
            assert "is out of reach: tcp://127.0.0.1" in told


def test_answers_of_a_board_are_checked(
    install: Callable[..., None], serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    address = serve()
    runtime = discovery.get_backend("test").create_runtime(apart=address)
    spec = (TensorSpec("float32", (5,)),)
    payload = DelegatePayload("Test", memoryview(b"--"), (), spec, spec, {}, lambda keys: b"")
    x, y = torch.zeros(5), torch.zeros(5)
    true = Session.answer
    for header, pieces in (
        ({}, [bytes(19)]),
        ({}, []),
        ({"changed": [[0, [6], [1]]]}, [bytes(24)]),
        ({"changed": [[0, [5], [1 << 40]]]}, [bytes(20)]),
        ({"changed": [[3, [5], [1]]]}, [bytes(20)]),
        ({"changed": [[0, [5], [-1]]]}, [bytes(20)]),
        ({"unasked": 1}, [bytes(20)]),
    ):
        handle = runtime.init(payload)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "answer", lambda *given, told=(header, pieces): told)
            with pytest.raises(ExecutionError, match="is out of reach: board-1"):
                runtime.execute(handle, [x], [y])
        runtime.destroy(handle)
    assert Session.answer is true
    handle = runtime.init(payload)
    runtime.execute(handle, [x], [y])
