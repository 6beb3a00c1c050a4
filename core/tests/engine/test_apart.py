"""Runtimes in processes of their own: data transfer, crashes, and lifetimes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from packages import ROOT
from scripted import SOURCE, program

import delegatekit
from delegatekit.plugins import discovery
from delegatekit.plugins.apart import end_all
from delegatekit_api import (
    DelegatePayload,
    ExecutionError,
    FormatError,
    PluginError,
    RuntimeUnavailableError,
    TensorSpec,
)

X = torch.arange(5.0)
DOUBLE = "outputs[0].copy_(2 * inputs[0])"

Install = Callable[..., None]


@pytest.fixture
def install(install_plugin: Any) -> Install:
    """Installs the backend."""

    def installed(available: str = "pass", create: str = "pass", described: str = "") -> None:
        install_plugin("test", SOURCE.format(available=available, create=create, described=described))

    return installed


def method(execute: str = DOUBLE, init: str = "pass", **more: Any) -> delegatekit.engine.Method:
    named = more.pop("named", None)
    return delegatekit.load(program(f"{init}\n--\n{execute}", named=named), isolate=True, **more)["forward"]


def runtime() -> Any:
    return discovery.get_backend("test").create_runtime(apart=True)


def payload(
    execute: str,
    inputs: Sequence[TensorSpec] = (TensorSpec("float32", (5,)),),
    outputs: Sequence[TensorSpec] = (TensorSpec("float32", (5,)),),
    init: str = "pass",
) -> DelegatePayload:
    blob = memoryview(f"{init}\n--\n{execute}".encode())
    return DelegatePayload("Test", blob, (), tuple(inputs), tuple(outputs), {}, lambda keys: b"")


def pid_of(call: Any) -> int:
    return int(call(torch.zeros(5))[0].item())


PID = "outputs[0].fill_(os.getpid())"


def gone(pid: int, seconds: float = 20) -> bool:
    """True if a process ends within some seconds; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


# -- data transfer ---------------------------------------------------------------------------------------------------


def test_a_runtime_gets_all_of_a_payload_there(install: Install, capfd: Any) -> None:
    install()
    check = """
assert payload.delegate_id == "Test" and payload.numbers == ()
assert payload.compile_specs == (CompileSpec("level", b"\\2"), CompileSpec("empty", b""))
assert payload.inputs == payload.outputs == (TensorSpec("float32", (5,)),)
assert sorted(payload.named_data) == ["a", "b"] and "a" in payload.named_data and "c" not in payload.named_data
assert bytes(payload.named_data["b"]) == b"22" * 100 and isinstance(payload.named_data["b"], memoryview)
kept["file"] = payload.as_program(["a"])
assert kept["file"][4:8] == b"ET12"
os.write(1, b"printed to stdout"); print("printed")
"""
    execute = (
        "assert payload.as_program(['a']) == kept['file']; assert bytes(payload.named_data['a']) == b'1'; " + DOUBLE
    )
    double = method(execute, check, named={"a": b"1", "b": b"22" * 100})
    assert torch.equal(double(X), 2 * X)
    assert torch.equal(double(X + 1), 2 * X + 2)
    with pytest.raises(FormatError, match="needs the named data 'c'"):
        method("pass", "payload.as_program(['c'])")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_of_every_kind_cross(name: str, shape: tuple[int, ...], shared: Any) -> None:
    spec = TensorSpec(name, shape)
    x = torch.randint(0, 2, shape).to(getattr(torch, name))
    handle = shared.init(
        payload("outputs[0].copy_(inputs[0]); outputs[1].copy_(~inputs[0].bool())", [spec], [spec] * 2)
    )
    copied, inverted = torch.zeros_like(x), torch.zeros_like(x)
    shared.execute(handle, [x], [copied, inverted])
    assert torch.equal(copied, x)
    assert torch.equal(inverted, (~x.bool()).to(x.dtype))
    shared.destroy(handle)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, write_plugin: Callable[..., Path]) -> Any:
    """A runtime for the tests that do not kill its process."""
    folder = write_plugin(
        tmp_path_factory.mktemp("site"), "test", SOURCE.format(available="pass", create="pass", described="")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        discovery.refresh()
        made = runtime()
        assert made.is_available().available
    discovery.refresh()
    del sys.modules["delegatekit_test_plugin"]
    return made


def test_axes_keep_their_order_in_memory(shared: Any) -> None:
    spec = TensorSpec("float32", (2, 3, 4, 5), dim_order=(0, 2, 3, 1))
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check = "assert inputs[0].stride() == outputs[0].stride() == (60, 1, 15, 3); outputs[0].copy_(inputs[0])"
    handle = shared.init(payload(check, [spec], [spec]))
    output = torch.zeros_like(x)
    shared.execute(handle, [x], [output])
    assert torch.equal(output, x) and output.stride() == x.stride()


def test_sizes_change_from_call_to_call(shared: Any) -> None:
    spec = TensorSpec("int64", (3, 8), dynamic=True)
    handle = shared.init(payload("outputs[0].resize_(inputs[0].shape).copy_(inputs[0] + 1)", [spec], [spec]))
    for shape in ((3, 8), (2, 5), (2, 5), (0, 8), (3, 1), (3, 8)):
        x, output = torch.randint(0, 9, shape), torch.zeros(3, 8, dtype=torch.int64)
        shared.execute(handle, [x], [output])
        assert torch.equal(output, x + 1)


def test_sizes_that_a_runtime_refused_are_not_those_of_the_next_call(shared: Any) -> None:
    check = "assert inputs[0].shape == (5,), 'not mine'; outputs[0].copy_(inputs[0])"
    handle, output = shared.init(payload(check)), torch.zeros(5)
    for _ in range(2):
        with pytest.raises(AssertionError, match="not mine"):
            shared.execute(handle, [torch.ones(4)], [output])
        shared.execute(handle, [X], [output])
        assert torch.equal(output, X)


def test_an_output_grows_into_no_other(shared: Any) -> None:
    spec = TensorSpec("float32", (4,), dynamic=True)
    handle = shared.init(payload("outputs[0].resize_(400).fill_(1)", [spec], [spec, spec]))
    with pytest.raises(RuntimeError, match="resize"):
        shared.execute(handle, [torch.zeros(4)], [torch.zeros(4), torch.zeros(4)])


def test_elements_that_a_runtime_does_not_write_are_noticed(shared: Any) -> None:
    output = torch.zeros(5)
    shared.execute(shared.init(payload("outputs[0][:3] = 1")), [X], [output])
    assert output[:3].tolist() == [1, 1, 1] and output[3:].isnan().all()


def test_tensors_that_do_not_fit_are_refused(shared: Any) -> None:
    handle = shared.init(payload(DOUBLE))
    with pytest.raises(ExecutionError, match=r"input 0 has dtype torch\.int64"):
        shared.execute(handle, [torch.arange(5)], [torch.zeros(5)])
    with pytest.raises(ExecutionError, match=r"input 0 has sizes \(6,\), more than \(5,\)"):
        shared.execute(handle, [torch.zeros(6)], [torch.zeros(5)])
    with pytest.raises(ExecutionError, match="takes 1 outputs, got 2"):
        shared.execute(handle, [X], [torch.zeros(5), torch.zeros(5)])
    with pytest.raises(ExecutionError, match="output 0 into other memory"):
        shared.execute(shared.init(payload("outputs[0].set_(torch.zeros(5))")), [X], [torch.zeros(5)])


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        ("raise ValueError('bad value')", ValueError, "^bad value$"),
        ("raise KeyError('name')", KeyError, "name"),
        ("raise Strange('odd', 2)", Exception, "Strange: odd"),
        ("raise UnicodeDecodeError('utf-8', b'x', 0, 1, 'odd')", ValueError, "odd"),
        ("sys.exit('no licence')", RuntimeError, "no licence"),
        ("raise KeyboardInterrupt", RuntimeError, "KeyboardInterrupt"),
    ],
)
def test_what_a_runtime_raises_there_is_raised_here(raised: str, kind: Any, said: str, shared: Any) -> None:
    handle = shared.init(payload(raised))
    with pytest.raises(kind, match=said):
        shared.execute(handle, [X], [torch.zeros(5)])
    with pytest.raises(kind, match=said):
        shared.init(payload("pass", init=raised))


@pytest.mark.parametrize("kind", [FormatError, ExecutionError, RuntimeUnavailableError, PluginError])
def test_errors_of_ours_keep_their_parts(kind: Any, shared: Any) -> None:
    with pytest.raises(kind) as caught:
        shared.init(payload("pass", init=f"raise {kind.__name__}('what', where='where', hint='hint')"))
    assert type(caught.value) is kind
    assert (caught.value.what, caught.value.where, caught.value.hint) == ("what", "where", "hint")


def test_a_handle_is_destroyed_once_and_then_refused(shared: Any, tmp_path: Path) -> None:
    note = f"open({str(tmp_path / 'note')!r}, 'a').write('destroyed ')"
    handle = shared.init(payload(DOUBLE, init=f"kept['destroy'] = {note!r}"))
    shared.destroy(handle)
    shared.destroy(handle)
    assert (tmp_path / "note").read_text() == "destroyed "
    with pytest.raises(ExecutionError, match="was destroyed"):
        shared.execute(handle, [X], [torch.zeros(5)])
    failing = shared.init(payload(DOUBLE, init="kept['destroy'] = '1 / 0'"))
    with pytest.raises(ZeroDivisionError):
        shared.destroy(failing)
    shared.destroy(failing)


def test_threads_use_handles_at_the_same_time(shared: Any) -> None:
    wrong: list[Any] = []

    def work(factor: int) -> None:
        handle = shared.init(payload(f"outputs[0].copy_({factor} * inputs[0])"))
        for number in range(100):
            output = torch.zeros(5)
            shared.execute(handle, [X + number], [output])
            if not torch.equal(output, factor * (X + number)):
                wrong.append((factor, number))
        shared.destroy(handle)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_a_process_outlives_the_thread_that_started_it(install: Install) -> None:
    install()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(method(PID)))
    thread.start()
    thread.join(120)
    assert not thread.is_alive()  # a watcher of the starter thread would have seen its end
    pid = pid_of(found[0])
    assert all(pid_of(found[0]) == pid != os.getpid() for _ in range(20))


# -- failures --------------------------------------------------------------------------------------------------------

ONCE = "if inputs[0][0] < 0:\n    {}\nelse:\n    outputs[0].copy_(torch.ones(5) * calls)"
BAD, GOOD = -torch.ones(5), torch.ones(5)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('stage 1'); os.kill(os.getpid(), 11)", r"crashed \(SIGSEGV\); it printed last:\s+stage 1"),
        ("ctypes.CDLL(None).puts(b'in C'); ctypes.string_at(0)", r"crashed \(SIGSEGV\); it printed last:\s+in C"),
        ("sys.stderr.write('no licence'); os._exit(7)", r"exit code 7; it printed last:\s+no licence"),
        ("time.sleep(600)", "took longer than it may and was stopped"),
    ],
)
def test_a_death_is_an_error_and_the_next_call_starts_anew(body: str, said: str, install: Install, capfd: Any) -> None:
    install()
    call = method(ONCE.format(body), time_limit=60.0)
    other = method("outputs[0].copy_(inputs[0])")
    assert [call(GOOD)[0].item() for _ in range(2)] == [1, 2]
    call.time_limit = 3.0 if "600" in body else 60.0
    with pytest.raises(ExecutionError, match=said) as caught:
        call(BAD)
    assert caught.value.where == "backend test, delegate Test"
    assert "restarts the process" in str(caught.value.hint) and "lost" in str(caught.value.hint)
    call.time_limit = None
    assert torch.equal(other(X), X)
    assert [call(GOOD)[0].item() for _ in range(2)] == [1, 2]
    assert capfd.readouterr().out == ""


def test_a_death_while_loading_is_an_error_about_the_blob(install: Install) -> None:
    install()
    kept = method(PID)
    pid = pid_of(kept)
    with pytest.raises(FormatError, match=r"loading it ended the process of its runtime, which crashed \(SIGABRT\)"):
        method(init="print('assertion'); os.abort()")
    assert pid_of(kept) != pid, "loaded anew"
    assert torch.equal(method()(X), 2 * X)


def test_state_that_another_delegate_costs_is_not_lost_silently(install: Install) -> None:
    install(described="owns_state=True")
    counts, fresh = method(ONCE.format("pass")), method(ONCE.format("pass"))
    assert counts(GOOD)[0] == 1
    with pytest.raises(FormatError):
        method(init="os._exit(1)")
    assert fresh(GOOD)[0] == 1, "it kept nothing yet"
    with pytest.raises(ExecutionError, match="has lost what it kept inside itself"):
        counts(GOOD)
    assert [counts(GOOD)[0].item() for _ in range(2)] == [1, 2]
    counts.reset()
    assert counts(GOOD)[0] == 1


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"available": "return Availability(False, 'no device here')"}, "no device here"),
        ({"available": "os.kill(os.getpid(), 11)"}, r"the process of the runtime crashed \(SIGSEGV\)"),
        ({"available": "raise ValueError('odd')"}, "ValueError: odd"),
        ({"create": "print('no library'); os._exit(3)"}, r"exit code 3; it printed last:\s+no library"),
        ({"create": "raise OSError('no library')"}, "create_runtime failed: OSError: no library"),
    ],
)
def test_a_runtime_that_cannot_work_there_says_so(faults: dict[str, str], said: str, install: Install) -> None:
    install(**faults)
    with pytest.raises(RuntimeUnavailableError, match=said):
        method()


# -- requests and lifetimes ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_backend_may_demand_it(install: Install) -> None:
    install(described="isolated_runtime=True")
    assert pid_of(delegatekit.load(program(f"pass\n--\n{PID}"))["forward"]) != os.getpid()
    assert discovery.get_backend("test").runtime_availability().available


def test_a_user_may_ask_for_it(install: Install) -> None:
    install()
    data = program(f"pass\n--\n{PID}")
    here, other, named, every = (
        pid_of(delegatekit.load(data, isolate=wanted)["forward"]) for wanted in (False, ["reference"], ["test"], True)
    )
    assert here == other == os.getpid()
    assert named == every != os.getpid()
    with pytest.raises(PluginError, match=r"isolate=\['test'\]"):
        delegatekit.load(data, isolate="test")
    with pytest.raises(PluginError, match="there is no backend 'tset'"):
        delegatekit.load(data, isolate=["tset"])


def test_run_has_an_option_for_it(install: Install, command_with: Any, tmp_path: Path) -> None:
    install()
    file = tmp_path / "model.pte"
    file.write_bytes(program(f"pass\n--\noutputs[0].fill_(os.getpid() != {os.getpid()})"))
    command = command_with("")
    outputs = [command("run", str(file), "--json", *more).out for more in ((), ("--isolate", "test"))]
    outputs.append(command("run", str(file), "--json", "--isolate", "all").out)
    assert ['"mean": 1.0' in text for text in outputs] == [False, True, True]
    assert "no backend 'tset'" in command("run", str(file), "--isolate", "tset", code=2).err


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_its_own(install: Install) -> None:
    install()
    call = method(f"kept['mark'] = 1; {PID}")
    pid = pid_of(call)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(pid_of(call)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        other = int(pipe.read())
    os.waitpid(child, 0)
    assert other not in (pid, os.getpid())
    assert gone(other)
    assert pid_of(call) == pid


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_the_process_that_started_it_however_that_ends(
    busy: bool, install: Install, tmp_path: Path
) -> None:
    install()
    file = tmp_path / "model.pte"
    file.write_bytes(program(f"pass\n--\n{PID}\nif inputs[0][0] > 0: ctypes.PyDLL(None).sleep(600)"))
    code = f"""
import delegatekit, os, torch, threading
call = delegatekit.load({str(file)!r}, isolate=True)["forward"]
print(int(call(torch.zeros(5))[0]), flush=True)
if {busy}:
    threading.Thread(target=call, args=(torch.ones(5),)).start()
input()
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, **pipes) as parent:
        pid = int(parent.stdout.readline())
        time.sleep(1)
        assert not gone(pid, 0.2)
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_processes_can_be_ended_and_start_again(install: Install) -> None:
    install()
    call = method(PID)
    pid = pid_of(call)
    end_all()
    assert gone(pid)
    assert not [thread for thread in threading.enumerate() if "_keep" in thread.name]
    assert pid_of(call) not in (pid, os.getpid())


def test_it_ends_by_itself_when_a_process_ends_as_it_should(install: Install, tmp_path: Path) -> None:
    install()
    note = str(tmp_path / "note")
    file = tmp_path / "model.pte"
    destroy = f"open({note!r}, 'w').write('destroyed')"
    file.write_bytes(program(f"kept['destroy'] = {destroy!r}\n--\n{PID}"))
    code = f"""
import delegatekit, torch
program = delegatekit.load({str(file)!r}, isolate=True)
print(int(program["forward"](torch.zeros(5))[0]), flush=True)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert gone(int(done.stdout))
    assert Path(note).read_text() == "destroyed"


# -- real backends ---------------------------------------------------------------------------------------------------


class Sums(torch.nn.Module):
    """Changing sizes, and state."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return torch.relu(self.linear(x)) + self.total


class Chooses(torch.nn.Module):
    """Control flow, with delegates in both branches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: torch.sin(x) + x, lambda x: torch.cos(x) * x, (x,))


@pytest.mark.parametrize("backend", ["reference", "demo"])
def test_backends_compute_the_same_there(backend: str, from_source: Any) -> None:
    rows = torch.export.Dim("rows", max=8)
    models: list[tuple[Any, Any, Any]] = [
        (Sums(), {"x": {0: rows}}, [torch.randn(size, 3) for size in (4, 8, 2, 2, 5)]),
        (Chooses(), None, [torch.ones(4, 3), -torch.ones(4, 3)]),
        (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), None, [torch.randn(1, 3, 8, 8)] * 2),
    ]
    with from_source(ROOT / "examples" / "minimal_backend"):
        for module, dynamic, inputs in models:
            exported = torch.export.export(module.eval(), (inputs[0],), dynamic_shapes=dynamic)
            data = delegatekit.lower(exported, backends=[backend]).buffer
            here, there = (delegatekit.load(data, isolate=wanted)["forward"] for wanted in (False, True))
            for x in inputs:
                assert torch.equal(here(x), there(x))
