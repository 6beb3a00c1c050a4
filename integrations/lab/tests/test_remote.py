"""Delegates on a board: what comes back, crashes, limits, and who has the board."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lab_files import Files, Serve
from scripted import program

import delegatekit
from delegatekit.cli.command_line import _without_devices
from delegatekit.plugins import address_of, discovery
from delegatekit_api import (
    DelegatePayload,
    ExecutionError,
    FormatError,
    LoweringError,
    OptionError,
    PluginError,
    RuntimeUnavailableError,
    TensorSpec,
)
from delegatekit_lab.certificates import make
from delegatekit_lab.desk import Desk
from delegatekit_lab.server import Board, Server

X = torch.arange(5.0)
DOUBLE = "outputs[0].copy_(2 * inputs[0])"
PID = "outputs[0].fill_(os.getpid())"

Install = Callable[..., None]


def method(address: str, execute: str = DOUBLE, init: str = "pass", **more: Any) -> Any:
    named = more.pop("named", None)
    file = program(f"{init}\n--\n{execute}", named=named)
    return delegatekit.load(file, isolate={"test": address}, **more)["forward"]


# -- data ------------------------------------------------------------------------------------------------------------


def test_a_delegate_on_a_board_computes_what_eager_does(install: Install, serve: Serve, files: Files) -> None:
    install()
    address = serve(files("board")) + files.query("anna")
    loaded = method(address)
    for number in range(3):
        x = X + number
        assert torch.equal(loaded(x), 2 * x)
    assert int(method(address, PID)(X)[0].item()) != os.getpid()


def test_a_board_gets_all_of_a_payload(install: Install, serve: Serve) -> None:
    install()
    check = """
assert payload.delegate_id == "Test" and payload.numbers == () and payload.method == "forward"
assert payload.compile_specs == (CompileSpec("level", b"\\2"), CompileSpec("empty", b""))
assert payload.inputs == payload.outputs == (TensorSpec("float32", (5,)),)
assert sorted(payload.named_data) == ["a", "b"] and "c" not in payload.named_data
assert bytes(payload.named_data["b"]) == b"22" * 100000
kept["file"] = payload.as_program(["a"])
assert kept["file"][4:8] == b"ET12"
"""
    named = {"a": b"1" * 9, "b": b"22" * 100000}
    assert torch.equal(method(serve(), init=check, named=named)(X), 2 * X)


@pytest.mark.parametrize("dtype", ["bool", "int64", "bfloat16", "float16", "complex64", "uint8"])
def test_bytes_of_all_dtypes_orders_and_sizes_arrive(dtype: str, install: Install, serve: Serve) -> None:
    install()
    runtime = delegatekit.plugins.get_backend("test").create_runtime(apart=serve())
    spec = TensorSpec(dtype, (2, 3, 4), True, (0, 2, 1))
    blob = memoryview(b"--\noutputs[0].copy_(inputs[0].flip(1)); outputs[1].resize_(1, 2).fill_(1)")
    payload = DelegatePayload("Test", blob, (), (spec,), (spec, TensorSpec(dtype, (3, 3), True)), {}, lambda keys: b"")
    handle = runtime.init(payload)
    for shape in ((2, 3, 4), (1, 2, 3), (0, 3, 4), (2, 3, 4)):
        x = torch.randint(0, 2, shape).to(getattr(torch, dtype)).transpose(1, 2).contiguous().transpose(1, 2)
        outputs = [torch.empty_like(x), torch.empty(3, 3, dtype=x.dtype)]
        runtime.execute(handle, [x], outputs)
        assert torch.equal(outputs[0], x.flip(1))
        assert torch.equal(outputs[1], torch.ones(1, 2, dtype=x.dtype))
    runtime.destroy(handle)
    with pytest.raises(ExecutionError, match="was destroyed"):
        runtime.execute(handle, [x], outputs)


def test_errors_of_the_runtime_keep_their_class_and_name_the_board(install: Install, serve: Serve) -> None:
    install()
    address = serve()
    with pytest.raises(FormatError, match=r"(?s)on board-1 \(tcp://127.*: is odd\n.*-> even it"):
        method(address, init="raise FormatError('is odd', hint='even it')")
    with pytest.raises(ExecutionError, match="no such thing"):
        method(address, "raise KeyError('no such thing')")(X)
    assert torch.equal(method(address)(X), 2 * X)


# -- deaths ----------------------------------------------------------------------------------------------------------


def test_a_crash_on_a_board_is_an_error_with_the_boards_log(install: Install, serve: Serve) -> None:
    install()
    address = serve()
    other = method(address)
    assert torch.equal(other(X), 2 * X)
    with pytest.raises(ExecutionError, match=r"(?s)board-1 .*crashed \(SIGSEGV\); it printed last:.*the fuse") as found:
        method(address, "print('the fuse'); sys.stdout.flush(); ctypes.string_at(0)")(X)
    assert "the next call" in str(found.value)
    assert torch.equal(other(X), 2 * X)  # loaded again
    with pytest.raises(FormatError, match=r"loading it ended the process of its runtime, which on board-1 .*crashed"):
        method(address, init="os.kill(os.getpid(), 9)")


def test_a_hang_ends_at_the_boards_limit_with_its_log(install: Install, serve: Serve) -> None:
    install()
    address = serve(time_limit=3.0)
    start = time.monotonic()
    with pytest.raises(ExecutionError, match=r"(?s)took longer than it may and was stopped.*waiting for the DSP"):
        method(address, "print('waiting for the DSP', flush=True); time.sleep(600)")(X)
    assert time.monotonic() - start < 60
    assert torch.equal(method(address)(X), 2 * X)


def test_a_methods_time_limit_holds_on_a_board(install: Install, serve: Serve) -> None:
    install()
    loaded = method(serve(), "time.sleep(kept['calls'] and 600)\n" + DOUBLE)
    loaded.time_limit = 2.0
    with pytest.raises(ExecutionError, match="took longer"):
        loaded(X)


def test_state_that_went_with_a_board_is_told_once(install: Install, serve: Serve) -> None:
    install(described="owns_state=True")
    address = serve()
    counts = method(address, "outputs[0].fill_(kept['calls'])")
    assert [counts(X)[0].item() for _ in range(2)] == [1, 2]
    with pytest.raises(ExecutionError, match="crashed"):
        method(address, "os.kill(os.getpid(), 11)")(X)
    with pytest.raises(ExecutionError, match="has lost what it kept inside itself"):
        counts(X)
    assert counts(X)[0].item() == 1
    counts.reset()
    assert counts(X)[0].item() == 1


def test_a_board_that_is_gone_is_said_and_found_again(install: Install, serve: Serve) -> None:
    install()
    server = Server(Board("test", "board-1"), "127.0.0.1", 0, None)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    address = f"tcp://127.0.0.1:{server.port}"
    server.close()
    thread.join(10)
    found = discovery.get_backend("test").runtime_availability(apart=address)
    assert not found.available
    assert f"is out of reach: {address}: Connection refused" in found.reason
    with pytest.raises(RuntimeUnavailableError, match="Connection refused"):
        method(address)
    again = Server(Board("test", "board-1"), "127.0.0.1", server.port, None)
    threading.Thread(target=again.serve, daemon=True).start()
    assert torch.equal(method(address)(X), 2 * X)
    again.close()


def test_an_idle_connection_is_made_again(install: Install, serve: Serve) -> None:
    install()
    loaded = method(serve(idle=1.0))
    assert torch.equal(loaded(X), 2 * X)
    time.sleep(2.5)
    assert torch.equal(loaded(X), 2 * X)


# -- who, and what for -----------------------------------------------------------------------------------------------


def test_one_user_at_a_time_has_a_board(
    install: Install, serve: Serve, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    address = serve(files("board"))
    loaded = method(address + files.query("anna"))
    assert torch.equal(loaded(X), 2 * X)
    with pytest.raises(RuntimeUnavailableError, match=r"is taken by anna \(.*\), since .*, until it is done"):
        method(address + files.query("bert"))
    monkeypatch.setenv("DELEGATEKIT_LAB_WAIT", "30")
    threading.Timer(1.0, delegatekit.plugins.apart.end_all).start()
    assert torch.equal(method(address + files.query("bert"))(X), 2 * X)  # after the linger


def test_what_a_board_does_not_serve_is_refused(
    install: Install, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    with pytest.raises(RuntimeUnavailableError, match=r"serves backend test \(delegatekit-test\), not reference"):
        delegatekit.plugins.get_backend("reference").create_runtime(apart=serve()).init(
            DelegatePayload("Test", memoryview(b""), (), (), (), {}, lambda keys: b"")
        )
    monkeypatch.setenv("DELEGATEKIT_DEVICES", "reference=tcp://127.0.0.1:1,junk://x")
    with pytest.raises(PluginError, match="nothing that is installed reaches a runtime at 'junk://x'"):
        delegatekit.plugins.get_backend("test").create_runtime()
    assert delegatekit.plugins.get_backend("test").create_runtime(apart=False).is_available().available


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tls://127.0.0.1:1", "needs a certificate: DELEGATEKIT_LAB_CERT"),
        ("tcp://192.0.2.1:1", "is on another machine, and tcp:// is not encrypted"),
        ("tls://127.0.0.1", "is no address of a board"),
        ("tls://h:1/x", "is no address of a board"),
        ("tls://h:99999", "is no address"),
        ("tls://h:1?cert=a", "all three files are needed"),
        ("tls://h:1?cert=a&key=b&ca=c&d=e", "is no address of a board"),
    ],
)
def test_wrong_addresses_say_what_is_wrong(
    address: str, told: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    for name in ("CERT", "KEY", "CA"):
        monkeypatch.delenv(f"DELEGATEKIT_LAB_{name}", raising=False)
    with pytest.raises(OptionError, match=told):
        delegatekit.plugins.get_backend("test").create_runtime(apart=address)


def test_other_machines_are_not_served_without_certificates(install: Install) -> None:
    install()
    with pytest.raises(OptionError, match=r"0\.0\.0\.0 can be reached from other machines"):
        Server(Board("test", "board-1"), "0.0.0.0", 0, None)


# -- the command -----------------------------------------------------------------------------------------------------


def test_addresses_stand_anywhere_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELEGATEKIT_DEVICES", "")
    words = [
        "delegatekit",
        "conform",
        "acme",
        "--device",
        "acme=tls://a:1",
        "--device",
        "name=one",
        "--device=tls://b:2",
    ]
    assert _without_devices(words) == ["delegatekit", "conform", "acme", "--device", "name=one"]
    assert address_of("acme") == "tls://a:1"
    assert address_of("other") == "tls://b:2"
    assert _without_devices(["--device"]) == ["--device"]


def test_an_address_with_the_files_of_certificates_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    files = "?cert=/keys/anna,bert.pem&key=/keys/anna.key&ca=/keys/ca.pem"
    monkeypatch.setenv("DELEGATEKIT_DEVICES", f" acme=tls://a:1{files} , tls://b:2{files},")
    assert address_of("acme") == f"tls://a:1{files}"
    assert address_of("other") == f"tls://b:2{files}"


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x) * x


def test_tuning_and_sweeps_use_a_board(
    demo: str, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "delegatekit_lab")
    address = serve(backend=demo)
    monkeypatch.setenv("DELEGATEKIT_DEVICES", f"{demo}={address}")
    found = delegatekit.tune(Sum(), (X,), backends=[demo], runs=2, warm_up=0)
    (tuned,) = found.programs.values()
    times = {item.backends: item for item in tuned.candidates}
    assert times[demo,].estimate == f"{demo}: its runtime is at {address}"
    assert not times[()].estimate
    with pytest.raises(LoweringError, match="runs in another process, whose CPU time this process does not see"):
        delegatekit.tune(Sum(), (X,), backends=[demo], runs=2, clock="CPU")
    uses = caplog.text.count("is used by")
    (row,) = delegatekit.sweep(Sum(), (X,), backends=[demo], runs=2).rows
    assert (row.outcome, row.delegates, row.not_run) == ("compiles", 1, "")
    assert row.wall_seconds and row.outputs and all(item.different == 0 for item in row.outputs)
    assert caplog.text.count("is used by") > uses > 0


def test_certificates_are_made_for_a_folder(tmp_path: Path) -> None:
    make(tmp_path, boards=["one=lab,192.0.2.1"], users=["anna"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("anna.key", "anna.pem", "ca.key", "ca.pem", "one.key", "one.pem")
    ]
    assert all(path.stat().st_mode & 0o77 == 0 for path in tmp_path.glob("*.key"))
    before = (tmp_path / "ca.pem").read_bytes()
    make(tmp_path, boards=[], users=["bert"])
    assert (tmp_path / "ca.pem").read_bytes() == before
    with pytest.raises(OptionError, match="exists already"):
        make(tmp_path, boards=[], users=["carl", "anna"])
    assert not (tmp_path / "carl.pem").exists()
    with pytest.raises(OptionError, match="cannot be the name"):
        make(tmp_path, boards=[], users=["../x"])


def test_a_desk_gives_a_board_to_one_after_the_other() -> None:
    desk = Desk("board-1", linger=0.2)
    order: list[str] = []
    with desk.place(("anna", "1"), "anna", 0):
        with pytest.raises(RuntimeUnavailableError, match="is taken by anna, since"):
            desk.reserve(("bert", "2"), "bert", 60, 0)
        with desk.place(("anna", "1"), "anna", 0):  # another process of the same user
            assert desk.tell()[0].startswith("anna")

        def wait(name: str) -> None:
            with desk.place((name, ""), name, 30):
                order.append(name)

        threads = [threading.Thread(target=wait, args=(name,)) for name in ("bert", "carl")]
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        assert desk.tell()[1] == 2
    for thread in threads:
        thread.join()
    assert order == ["bert", "carl"]
    time.sleep(0.3)
    held = desk.reserve(("anna", "1"), "anna", 3600, 0)
    assert "reserved until" in str(held)
    with pytest.raises(RuntimeUnavailableError, match="reserved until"):
        desk.reserve(("bert", "2"), "bert", 60, 0.1)
    with pytest.raises(RuntimeUnavailableError, match="is not reserved by this user"):
        desk.release(("bert", "2"))
    desk.release(("anna", "1"))
    assert desk.tell() == ("", 0)
