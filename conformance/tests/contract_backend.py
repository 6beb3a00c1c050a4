"""The backend "seeded": runs a few operators with torch and keeps every rule. Tests replace lines of this text."""

import json
import os  # noqa: F401  (for what tests put in)
import time
import zlib
from dataclasses import dataclass, field

from delegatekit_api import (
    ApiVersion,
    Availability,
    BackendDescription,
    BackendOptions,
    CompileSpec,
    ExecutionError,
    FormatError,
    NamedData,
    PreprocessResult,
    Verdict,
    hookimpl,
    option,
)
from delegatekit_api.blobs import BlobOperator
from delegatekit_api.devices import Estimate, Verification
from delegatekit_api.nodes import operator_name
from delegatekit_api.profiling import OperatorTime

TAKEN = (
    "aten.add.Tensor",
    "aten.mul.Tensor",
    "aten.relu.default",
    "aten.sigmoid.default",
    "aten.linear.default",
    "aten.embedding.default",
)
KEPT = []
ESTIMATE = Estimate("seeded 1", latency=1e-6)


def stranger(names):
    return next((f"{name!r} is no operator" for name in sorted(names) if not name.startswith("aten.")), None)


@dataclass(frozen=True)
class Options(BackendOptions):
    """The options."""

    level: int = option(1, help="How hard to try.", choices=(0, 1, 2))
    names: frozenset[str] = option(frozenset(), help="Operators to leave.", check=stranger)
    exact: bool = option(False, help="Whether to be exact.")
    leave_out: frozenset[str] = option(frozenset(), help="Operators that are not taken.", check=stranger)
    whole_graph: bool = option(False, help="Whether a program must be one delegate.")


@hookimpl
def describe_backend():
    return BackendDescription(
        name="seeded",
        delegate_id="SeededBackend",
        distribution="delegatekit-seeded",
        version="1.2",
        summary="a seeded fault",
        api_version=ApiVersion(2, 2),
        options=Options,
        supports_dynamic_shapes=True,
        integrity_check=True,
    )


@hookimpl
def verification(options):
    level = options.level
    return Verification("a simulator", level > 0, "" if level else "level is 0")


class Partitioner:
    def __init__(self, options):
        self.options = options

    def special_values(self, call):
        return "NaN is 0" if call.operator == "aten.relu.default" else ""

    def plan_reason(self, plan):
        return "it is not one delegate" if self.options.whole_graph and not plan.is_whole else None

    def keep_operators(self):
        return {"aten.linear.default"}

    def check(self, call):
        node = call.node
        name = call.operator
        if name not in TAKEN:
            return Verdict.no(f"{name} is not in the table")
        if str(node.meta["val"].dtype) != "torch.float32" or node.meta["val"].numel() == 0:
            return Verdict.no("only float32 tensors with elements are taken")
        if name in self.options.leave_out:
            return Verdict.no("the user leaves it out")
        return Verdict.yes()

    def propose(self, program):
        return None


@hookimpl
def create_partitioner(options):
    return Partitioner(options)


@hookimpl
def preprocess(partition, options):
    view = partition.view
    named = {}
    for node, tensor in view.constants.items():
        data = tensor.contiguous().numpy().tobytes()
        named[node.name] = NamedData(f"{zlib.crc32(data):08x}", data)
    steps = []
    handles = {}
    for node in view.graph.nodes:
        if node.op == "call_function":
            arguments = [item.name if hasattr(item, "name") else item for item in node.args]
            handles[len(steps)] = (node.meta["debug_handle"],)
            steps.append([node.name, operator_name(node), arguments])
    plan = {
        "inputs": [node.name for node in view.inputs],
        "outputs": [node.name for node in view.outputs],
        "constants": {node.name: [named[node.name].key, list(view.constants[node].shape)] for node in view.constants},
        "steps": steps,
        "sizes": [
            [size if isinstance(size, int) else -1 for size in node.meta["val"].shape]
            for node in (*view.inputs, *view.outputs)
        ],
    }
    body = json.dumps(plan, sort_keys=True).encode()
    blob = b"SEED" + zlib.crc32(body).to_bytes(4, "little") + body
    specs = (CompileSpec("level", b"1"),)
    return PreprocessResult(blob, specs, tuple(named.values()), handles, ESTIMATE)


@hookimpl
def blob_operators(blob):
    data = bytes(blob)
    if data[:4] != b"SEED" or zlib.crc32(data[8:]).to_bytes(4, "little") != data[4:8]:
        raise FormatError("is damaged", where="seeded blob")
    steps = json.loads(data[8:])["steps"]
    return [
        BlobOperator(operator, tuple(item for item in items if isinstance(item, str)), (name,))
        for name, operator, items in steps
    ]


@dataclass
class Handle:
    plan: dict = None
    constants: dict = field(default_factory=dict)
    inputs: tuple = ()
    outputs: tuple = ()
    ran: bool = False


def matches(tensor, spec):
    shape = tuple(tensor.shape)
    fits = shape == spec.shape
    if spec.dynamic:
        fits = len(shape) == len(spec.shape) and all(a <= b for a, b in zip(shape, spec.shape, strict=True))
    return fits and str(tensor.dtype) == f"torch.{spec.dtype}"


class Runtime:
    def is_available(self):
        return Availability(True)

    def init(self, payload):
        import torch

        blob = bytes(payload.blob)
        for spec in payload.compile_specs:
            if spec.key != "level":
                raise FormatError("an unknown compile spec", where=spec.key)
        if blob[:4] != b"SEED" or len(blob) < 8:
            raise FormatError("not a blob of this backend", where="offset 0")
        if zlib.crc32(blob[8:]).to_bytes(4, "little") != blob[4:8]:
            raise FormatError("the checksum is wrong", where="offset 4")
        plan = json.loads(blob[8:])
        if len(plan["inputs"]) != len(payload.inputs) or len(plan["outputs"]) != len(payload.outputs):
            raise FormatError("has another number of arguments than the program gives", where="seeded")
        for sizes, spec in zip(plan["sizes"], [*payload.inputs, *payload.outputs], strict=False):
            if [size for size in spec.shape if -1 not in sizes] != [size for size in sizes if -1 not in sizes]:
                raise FormatError("has other sizes than the program gives", where="seeded")
        handle = Handle(plan, {}, payload.inputs, payload.outputs)
        for name, (key, shape) in plan["constants"].items():
            if key not in payload.named_data:
                raise FormatError("needs named data that is not there", where=key)
            data = bytes(payload.named_data[key])
            if f"{zlib.crc32(data):08x}" != key:
                raise FormatError("the checksum of named data is wrong", where=key)
            handle.constants[name] = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(shape)
        return handle

    def execute(self, handle, inputs, outputs):
        self.profile(handle, inputs, outputs)

    def profile(self, handle, inputs, outputs):
        import torch

        if handle.plan is None:
            raise ExecutionError("the handle was destroyed", where="seeded")
        if len(inputs) != len(handle.inputs) or len(outputs) != len(handle.outputs):
            raise ExecutionError("wrong number of tensors", where="seeded")
        for tensor, spec in zip([*inputs, *outputs], [*handle.inputs, *handle.outputs], strict=True):
            if not matches(tensor, spec):
                raise ExecutionError("a tensor has another shape or dtype", where="seeded")
        handle.ran = True
        values = dict(handle.constants)
        times = []
        # Some processors' kernels round differently where a tensor is not aligned: copies are.
        values.update(zip(handle.plan["inputs"], [item.clone() for item in inputs], strict=True))
        for name, operator, arguments in handle.plan["steps"]:
            _, packet, overload = operator.split(".")
            function = getattr(getattr(torch.ops.aten, packet), overload)
            start = time.perf_counter()
            try:
                values[name] = function(*(values[a] if isinstance(a, str) else a for a in arguments))
            except RuntimeError as error:
                raise ExecutionError(str(error), where=operator) from error
            times.append(OperatorTime(operator, time.perf_counter() - start, len(times)))
        for output, name in zip(outputs, handle.plan["outputs"], strict=True):
            output.resize_(values[name].shape).copy_(values[name])
        return times

    def destroy(self, handle):
        handle.plan = None


@hookimpl
def create_runtime():
    return Runtime()
