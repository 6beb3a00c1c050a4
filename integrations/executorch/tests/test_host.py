"""Our delegates in stock ExecuTorch's runtime: what they compute, in each of its ways to run a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import delegatekit
from delegatekit import pte
from delegatekit.plugins import get_backend
from delegatekit_toolkit.accuracy import tolerance

RunHosted = Callable[..., list[list[torch.Tensor]]]
HostProcess = Callable[..., str]

BACKENDS = ["reference", "vulkan", "coreml"]
#: The most terms of a sum in these models, by the count of conformance: one for each rounding beside the longest sum.
TERMS = 12


class Mixed(torch.nn.Module):
    """Two results of different shapes, with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, 4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x * y + self.weight
        return z, z * z + y


class Rows(torch.nn.Module):
    """A layer with weights, and one result of another shape."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(self.linear(x)) + 1, x.sum(-1, keepdim=True)


def rows(backend: str, **more: object) -> delegatekit.LoweredProgram:
    program = delegatekit.lower(Rows().eval(), (torch.ones(5, 8),), backends=[backend], **more)
    assert len(program.methods["forward"].delegates) == 1
    return program


def in_engine(program: delegatekit.LoweredProgram, call: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The results of the program's file in our engine."""
    loaded = delegatekit.load(program.buffer, data=list(program.data_files.values()))
    return tuple(loaded["forward"](*call))


def limit(backend: str, largest: float) -> float:
    """The largest error that rounding explains, as conformance has it, beside a largest value."""
    return tolerance("float32", get_backend(backend).compute_precision(), TERMS) * largest


def assert_right(
    program: delegatekit.LoweredProgram,
    call: tuple[torch.Tensor, ...],
    found: Sequence[torch.Tensor],
    wanted: tuple[torch.Tensor, ...],
) -> None:
    """Assert that results are those of our engine, bit for bit, and those of eager up to the backend's rounding."""
    for result, ours, eager in zip(found, in_engine(program, call), wanted, strict=True):
        assert torch.equal(result, ours)
        allowed = limit(program.backends[0], float(eager.abs().max()))
        torch.testing.assert_close(result, eager, rtol=0, atol=allowed)


@pytest.mark.parametrize("backend", ["reference", "demo", "vulkan", "coreml"])
def test_a_file_runs_in_stocks_runtime(backend: str, demo: str, run_hosted: RunHosted) -> None:
    model, calls = Mixed().eval(), [(torch.randn(3, 4), torch.randn(3, 4)) for _ in range(3)]
    program = delegatekit.lower(model, calls[0], backends=[backend])
    assert len(program.methods["forward"].delegates) == 1
    for call, results in zip(calls, run_hosted(program.buffer, calls), strict=True):
        assert_right(program, call, results, model(*call))


@pytest.mark.parametrize("backend", BACKENDS)
def test_sizes_change_from_call_to_call(backend: str, run_hosted: RunHosted) -> None:
    program = rows(backend, dynamic_shapes={"x": {0: Dim("n", min=1, max=16)}})
    calls = [(torch.randn(count, 8),) for count in (3, 16, 1, 5, 16)]
    for call, results in zip(calls, run_hosted(program.buffer, calls), strict=True):
        assert_right(program, call, results, Rows().eval()(*call))


def test_a_quantized_program_runs_by_its_command_stream(run_hosted: RunHosted) -> None:
    pytest.importorskip("torchao")
    pytest.importorskip("ethosu.regor", reason="Vela is not installed")
    x = torch.randn(2, 4)
    quantized = delegatekit.quantize(torch.nn.Linear(4, 3).eval(), [x], backend="ethosu")
    for options in ({}, {"keep_tosa": True, "target": "ethos-u85-256"}):
        program = delegatekit.lower(quantized, (x,), backends=["ethosu"], options={"ethosu": options})
        assert program.methods["forward"].delegates
        ((result,),) = run_hosted(program.buffer, [(x,)])
        assert torch.equal(result, quantized(x))


MODULES = """
import torch
from executorch.extension.pybindings import _C
source, inputs, target, trace, bundle = sys.argv[1:]
(call,) = torch.load(inputs)
module = _C._load_for_executorch(source, enable_etdump=True)
results = [[value.clone() for value in module.run_method("forward", call)]]
module.write_etdump_result_to_file(trace)
data = open(source, "rb").read()
again = _C._load_for_executorch_from_buffer(data)
results.append([value.clone() for value in again.forward(call)])
del again
bundled = _C._load_bundled_program_from_buffer(open(bundle, "rb").read(), 1 << 20)
inside = _C._load_for_executorch_from_bundled_program(bundled)
# Raises an error unless they are the same.
bundled.verify_result_with_bundled_expected_output("forward", 0, 0.0, 0.0)
torch.save(results, target)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_modules_bundles_and_traces(backend: str, host_process: HostProcess, tmp_path: Path) -> None:
    from delegatekit_toolkit.etdump import read_events

    program, x = rows(backend), torch.randn(5, 8)
    paths = [tmp_path / name for name in ("file.pte", "inputs.pt", "outputs.pt", "trace.etdp", "bundle.bpte")]
    program.save(paths[0])
    torch.save([(x,)], paths[1])
    case = delegatekit.Case((x,), {}, in_engine(program, (x,)))
    paths[4].write_bytes(delegatekit.bundle(program.buffer, {"forward": [case]}).buffer)
    host_process(MODULES, *paths)
    for results in torch.load(paths[2]):
        assert_right(program, (x,), results, Rows().eval()(x))
    # The operators by their keys in the file's debug map, as ExecuTorch's Inspector looks them up.
    events = read_events(paths[3].read_bytes())
    (delegate,) = program.methods["forward"].delegates
    found = {
        event.delegate_debug_id_int if event.delegate_debug_id_str is None else event.delegate_debug_id_str
        for event in events
        if event.delegate_debug_id_str is not None or event.delegate_debug_id_int != -1
    }
    assert found & set(delegate.debug_handle_map)
    assert all(event.end_time >= event.start_time for event in events)


THREADS = """
import threading
from executorch.extension.pybindings import _C
data, wrong = open(sys.argv[1], "rb").read(), []
inputs, wanted = torch.load(sys.argv[2])
def work():
    try:
        program = _C._load_program_from_buffer(data)
        method = program.load_method("forward")
        for _ in range(40):
            for found, expected in zip(method((inputs,)), wanted, strict=True):
                assert torch.equal(found, expected)
        del method, program
    except BaseException as error:
        wrong.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
from delegatekit_executorch.host.registration import living
print(len(wrong), living(), *wrong)
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_programs_in_several_threads(backend: str, python: Callable[..., str], tmp_path: Path) -> None:
    program, x = rows(backend), torch.randn(5, 8)
    program.save(tmp_path / "file.pte")
    torch.save((x, in_engine(program, (x,))), tmp_path / "call.pt")
    # In a process that ends after it: C++'s streams are flushed then.
    assert python(THREADS, tmp_path / "file.pte", tmp_path / "call.pt").split() == ["0", "0"]


FAULTS = """
import json
from executorch.extension.pybindings import _C
told = []
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    try:
        _C._load_program_from_buffer(data).load_method("forward")
    except RuntimeError as error:
        told.append([str(error), str(host.last_error())])
print(json.dumps(told))
"""


def test_a_damaged_delegate_is_refused_when_it_is_loaded(host_process: HostProcess, tmp_path: Path) -> None:
    paths = []
    for backend in BACKENDS:
        data = bytearray(rows(backend).buffer)
        file = pte.read(bytes(data))
        blob = bytes(file.delegate_blob(file.program.execution_plan[0].delegates[0]))
        data[bytes(data).index(blob) + len(blob) // 2] ^= 0xFF
        paths.append(tmp_path / f"{backend}.pte")
        paths[-1].write_bytes(data)
    told = json.loads(host_process(FAULTS, *paths))
    assert len(told) == len(BACKENDS)
    for code, reason in told:
        assert "0x:30" in code
        assert reason.startswith("delegate ") and "damaged" in reason


RAISING = """
from executorch.extension.pybindings import _C
from delegatekit_reference.runtime.runtime import ReferenceRuntime
data = open(sys.argv[1], "rb").read()
program = _C._load_program_from_buffer(data)
method = program.load_method("forward")
run = ReferenceRuntime.run
def broken(*arguments):
    raise SystemExit("no licence server")
ReferenceRuntime.run = broken
try:
    method((torch.ones(5, 8),))
except RuntimeError as error:
    print("0x" in str(error), host.last_error().where, host.last_error().what, sep="|")
ReferenceRuntime.run = run
print(method((torch.ones(5, 8),))[0].shape)
"""


def test_an_exception_of_a_runtime_is_an_error_of_the_call(host_process: HostProcess, tmp_path: Path) -> None:
    rows("reference").save(tmp_path / "file.pte")
    failed, shape = host_process(RAISING, tmp_path / "file.pte").splitlines()
    code, where, what = failed.split("|")
    assert (code, where) == ("True", "delegate ReferenceBackend")
    assert "no licence server" in what
    assert shape == "torch.Size([5, 8])"


EXTERNAL = """
from executorch.extension.pybindings import _C
source, data, inputs, target = sys.argv[1:]
module = _C._load_for_executorch(source, data)
torch.save([value.clone() for value in module.forward(torch.load(inputs))], target)
"""


@pytest.mark.parametrize("backend", ["reference", "vulkan"])
def test_named_data_comes_from_a_data_file(backend: str, host_process: HostProcess, tmp_path: Path) -> None:
    program, x = rows(backend, external=True), torch.randn(5, 8)
    source, inputs, target = (tmp_path / name for name in ("file.pte", "inputs.pt", "outputs.pt"))
    program.save(source)
    torch.save((x,), inputs)
    host_process(EXTERNAL, source, source.with_suffix(".ptd"), inputs, target)
    assert_right(program, (x,), torch.load(target), Rows().eval()(x))


STOCKS = """
import json
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import _C
name, changing = sys.argv[1], sys.argv[2] == "True"
if name == "vulkan":
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner as Partitioner
else:
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner as Partitioner
class Two(torch.nn.Module):
    def forward(self, x, y):
        z = x * y + x
        return z, torch.relu(z) * y
x, y = torch.randn(6, 8), torch.randn(6, 8)
shapes = [{0: torch.export.Dim("n", min=1, max=12)}] * 2 if changing else None
exported = torch.export.export(Two().eval(), (x, y), dynamic_shapes=shapes)
data = to_edge_transform_and_lower(exported, partitioner=[Partitioner()]).to_executorch().buffer
program = _C._load_program_from_buffer(data)
method = program.load_method("forward")
worst = 0.0
for rows in (12, 3, 1, 5) if changing else (6, 6):
    x, y = torch.randn(rows, 8), torch.randn(rows, 8)
    for found, wanted in zip(method((x, y)), Two()(x, y), strict=True):
        assert found.shape == wanted.shape, (found.shape, wanted.shape)
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max()))
import delegatekit.pte
plan = delegatekit.pte.read(data).program.execution_plan[0]
print(json.dumps([len(plan.delegates), worst]))
"""


@pytest.mark.parametrize(("backend", "changing"), [("vulkan", False), ("vulkan", True), ("coreml", False)])
def test_a_file_of_stocks_own_partitioner_runs(backend: str, changing: bool, host_process: HostProcess) -> None:
    if backend == "coreml":
        pytest.importorskip("coremltools")
    delegates, worst = json.loads(host_process(STOCKS, backend, str(changing)).splitlines()[-1])
    assert delegates == 1
    assert worst <= limit(backend, 1.0)


GROWTH = """
import gc
from executorch.extension.pybindings import _C
data, x = open(sys.argv[1], "rb").read(), torch.ones(5, 8)
def once():
    program = _C._load_program_from_buffer(data)
    method = program.load_method("forward")
    method((x,))
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for _ in range(200):
    once()
before = resident()
for _ in range(2000):
    once()
from delegatekit_executorch.host.registration import living
print(resident() - before, living())
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_thousand_loads_leave_nothing_behind(backend: str, python: Callable[..., str], tmp_path: Path) -> None:
    rows(backend).save(tmp_path / "file.pte")
    grown, living = map(int, python(GROWTH, tmp_path / "file.pte").split())
    assert living == 0
    assert grown < 4 << 20


REGISTRATION = """
import json
before = [item.delegate_id for item in host.registered()]
host.register()
host.register("reference", "reference")
host.register("xnnpack")
try:
    host.register("executorch.nxp")
except Exception as error:
    refused = str(error)
try:
    host.register("no such backend")
except Exception as error:
    unknown = str(error)
from executorch.runtime import Runtime
names = Runtime.get().backend_registry.registered_backend_names
print(json.dumps([before, names, refused, unknown, [item.delegate_id for item in host.registered()]]))
"""


def test_delegates_that_stock_has_stay_its_own(host_process: HostProcess) -> None:
    before, names, refused, unknown, after = json.loads(host_process(REGISTRATION).splitlines()[-1])
    assert before == after
    assert {"ReferenceBackend", "VulkanBackend", "CoreMLBackend", "EthosUBackend", "DemoBackend"} <= set(before)
    assert "XnnpackBackend" not in before and len(names) == len(set(names))
    assert set(before) < set(names)
    assert "backend executorch.nxp: has no runtime" in refused
    assert "no backend 'no such backend' is installed" in unknown


QUALCOMM = """
import torch
import delegatekit
from executorch.runtime import Runtime

host.register("qnn")
model, x = torch.nn.Linear(4, 4).eval(), torch.ones(1, 4)
data = delegatekit.lower(model, (x,), backends=["qnn"]).buffer
(found,) = Runtime.get().load_program(data).load_method("forward").execute((x,))
eager = model(x).detach()
print(float((found - eager).abs().max() / eager.abs().max()))
"""


def test_qualcomms_library_is_there_for_stocks_delegate_once_its_backend_is_registered(
    python: Callable[..., str],
) -> None:
    backend = get_backend("qnn")
    if not backend.compiler_availability().available:
        pytest.skip(backend.compiler_availability().reason)
    assert float(python(QUALCOMM).splitlines()[-1]) <= tolerance("float32", backend.compute_precision(), 4)
