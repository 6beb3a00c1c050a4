"""Shared by the snippets: running a function on stock ExecuTorch alone, and a TOSA graph through Vela."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class CannotRunHereError(Exception):
    """Something that the snippet needs is not installed here; the message says what."""


def needs_avx512() -> None:
    """Raise CannotRunHereError on a processor for which PyTorch uses other kernels than those for AVX-512."""
    found = torch.backends.cpu.get_cpu_capability()
    if found != "AVX512":
        raise CannotRunHereError(f"the kernel is that for AVX512; this processor has {found}")


def needs_less_than_avx512() -> None:
    """Raise CannotRunHereError on a processor with AVX-512: the fault is in the kernels for those without."""
    if torch.backends.cpu.get_cpu_capability() == "AVX512":
        raise CannotRunHereError("the fault is in kernels for less than AVX-512, which this processor has")


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        """Call it."""
        return self.function(*inputs)


def differs(found: torch.Tensor, expected: torch.Tensor, *, rtol: float = 0.0) -> str | None:
    """The difference between the result and the expected tensor, in words; None if they are the same."""
    if found.shape == expected.shape and torch.allclose(found, expected, rtol=rtol, atol=0.0, equal_nan=True):
        return None
    where = (found != expected) & ~(found.isnan() & expected.isnan()) if found.shape == expected.shape else slice(None)
    return f"{found[where].tolist()[:4]}, should be {expected[where].tolist()[:4]}"


def lowered(
    model: Callable[..., Any], inputs: Sequence[Any], partitioners: Sequence[Any] = (), dynamic_shapes: Any = None
) -> bytes:
    """The .pte file that stock ExecuTorch makes of a module or function."""
    try:
        from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    except ImportError as error:
        raise CannotRunHereError(f"executorch is not installed ({error})") from error
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    module = model if isinstance(model, torch.nn.Module) else Module(model)
    module.eval()  # which gives nothing for an exported one
    shapes = None if dynamic_shapes is None else (tuple(dynamic_shapes),)
    exported = torch.export.export(
        module, tuple(inputs), dynamic_shapes=shapes if isinstance(module, Module) else dynamic_shapes, strict=False
    )
    config = EdgeCompileConfig(_check_ir_validity=False)
    made = to_edge_transform_and_lower(exported, partitioner=list(partitioners), compile_config=config)
    return bytes(made.to_executorch().buffer)


def run(file: bytes, *inputs: Any) -> torch.Tensor:
    """The first output of a .pte file, in stock ExecuTorch's runtime."""
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    result: torch.Tensor = _load_for_executorch_from_buffer(file).forward(list(inputs))[0]
    return result


def failure(function: Callable[..., Any], *arguments: Any) -> str | None:
    """The first line of the error that a call raises, and of its cause; None if it raises none."""
    try:
        function(*arguments)
    except CannotRunHereError:
        raise
    except Exception as error:
        told = [error, *filter(None, [error.__cause__])]
        return "; ".join((str(item).splitlines() or [type(item).__name__])[0] for item in told)
    return None


def stock(model: Callable[..., Any], *inputs: Any) -> torch.Tensor:
    """The result of stock ExecuTorch's own operators, lowered and run without any of our code."""
    return run(lowered(model, inputs), *inputs)


def xnnpack(model: Callable[..., Any], *inputs: Any) -> torch.Tensor:
    """The result of stock ExecuTorch's XNNPACK delegate."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return run(lowered(model, inputs, [XnnpackPartitioner()]), *inputs)


def openvino_library() -> Any:
    """OpenVINO, loaded without its telemetry."""
    try:
        from delegatekit_openvino.blob.library import openvino as load
    except ImportError as error:
        raise CannotRunHereError(f"delegatekit-openvino is not installed ({error})") from error
    return load()


def openvino(model: Callable[..., Any], *inputs: Any, dynamic_shapes: Any = None) -> bytes:
    """The .pte file that stock ExecuTorch makes with its OpenVINO partitioner."""
    # OpenVINO would report its use over the network.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        from executorch.backends.openvino.partitioner import OpenvinoPartitioner
        from executorch.exir.backend.backend_details import CompileSpec
    except ImportError as error:
        raise CannotRunHereError(f"openvino, nncf or executorch is not installed ({error})") from error
    partitioner = OpenvinoPartitioner([CompileSpec("device", b"CPU")])
    return lowered(model, inputs, [partitioner], dynamic_shapes)


def mlx() -> Any:
    """The module `mlx.core`, whose arrays are the processor's on Linux."""
    import mlx.core

    if mlx.core.default_device() != mlx.core.Device(mlx.core.cpu):
        raise CannotRunHereError("MLX computes on a GPU here")
    return mlx.core


def quantized_on_the_way(model: torch.nn.Module, *inputs: Any) -> torch.nn.Module:
    """The module with weights in int8 and inputs that get their scales at run time, by stock's XNNPACKQuantizer."""
    try:
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    except ImportError as error:
        raise CannotRunHereError(f"torchao or executorch is not installed ({error})") from error
    warnings.simplefilter("ignore")
    chosen = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_global(chosen)
    prepared = prepare_pt2e(torch.export.export(model.eval(), inputs).module(), quantizer)
    prepared(*inputs)
    result: torch.nn.Module = convert_pt2e(prepared)
    allow_exported_model_train_eval(result)
    return result


def coreml(model: Callable[..., Any], *inputs: Any) -> bytes:
    """The .pte file that stock ExecuTorch makes with its Core ML partitioner, in float32."""
    try:
        import coremltools
        from executorch.backends.apple.coreml.compiler import CoreMLBackend
        from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    except ImportError as error:
        raise CannotRunHereError(f"coremltools or executorch is not installed ({error})") from error
    specs = CoreMLBackend.generate_compile_specs(compute_precision=coremltools.precision.FLOAT32)
    return lowered(model, inputs, [CoreMLPartitioner(compile_specs=specs)])


def mlx_nodes(model: Callable[..., Any], inputs: Sequence[Any], dynamic_shapes: Any = None) -> list[dict[str, Any]]:
    """The nodes of the first delegate that stock ExecuTorch's MLX partitioner makes, as its inspector tells them."""
    try:
        from delegatekit_executorch_backends.compiler.generating import generate_mlx

        generate_mlx()
        from executorch.backends.mlx import MLXPartitioner
        from executorch.backends.mlx.pte_inspector import extract_delegate_payload, parse_mlx_payload
    except ImportError as error:
        raise CannotRunHereError(f"executorch or its MLX backend is not installed ({error})") from error
    file = lowered(model, inputs, [MLXPartitioner()], dynamic_shapes)
    chains = parse_mlx_payload(extract_delegate_payload(file, "MLXBackend"))["graph"]["instruction_chains"]
    return [node for chain in chains for node in chain["instructions"]]


class Tosa:
    """A TOSA graph of integers under construction; the weights are random, and always the same."""

    def __init__(self) -> None:
        try:
            from ethosu import regor  # noqa: F401

            from delegatekit_toolkit import tosa
            from delegatekit_toolkit.tosa import reference
        except ImportError as error:
            raise CannotRunHereError(f"Vela or the Ethos-U backend is not installed ({error})") from error
        if not reference.availability().available:
            raise CannotRunHereError(reference.availability().reason)
        self.tosa = tosa
        self.graph = tosa.Graph("found")
        self._random = np.random.default_rng(0)

    def input(self, *shape: int) -> Any:
        """An input of int8."""
        return self.graph.input("input", shape, self.tosa.DType.INT8)

    def weights(self, *shape: int) -> Any:
        """Constant weights."""
        return self.graph.constant(self._random.integers(-60, 61, shape), self.tosa.DType.INT8)

    def constant(self, values: Any, dtype: str = "INT8") -> Any:
        """A constant."""
        return self.graph.constant(values, self.tosa.DType[dtype])

    def add(self, operator: Any, inputs: Sequence[Any], *shape: int, dtype: str = "INT8") -> Any:
        """An operator's result."""
        return self.graph.add(operator, inputs, shape, self.tosa.DType[dtype], operator.name.lower())

    def sliced(self, x: Any, start: Sequence[int], *shape: int) -> Any:
        """A part of a tensor."""
        operands = [x, self.constant(start, "SHAPE"), self.constant(shape, "SHAPE")]
        return self.add(self.tosa.Slice(), operands, *shape)

    def rescaled(self, x: Any, scale: float, dtype: str = "INT8") -> Any:
        """A tensor of another type, multiplied by a number."""
        from delegatekit_toolkit.tosa.numerics import multipliers_and_shifts

        multipliers, shifts = multipliers_and_shifts([scale])
        zeros = [self.graph.constant([0], x.dtype), self.constant([0], dtype)]
        operands = [x, self.constant(multipliers, "INT32"), self.constant(shifts), *zeros]
        return self.add(self.tosa.Rescale(), operands, *x.shape, dtype=dtype)

    def wrong(self, output: Any, target: str = "ethos-u55-128") -> str | None:
        """The fault in the commands that Vela makes of the graph, in words; None if there is none.

        The commands are run by the backend's interpreter, the graph by Arm's reference model, on the same integers.
        """
        from delegatekit_api import DelegateKitError
        from delegatekit_ethosu.blob import pack
        from delegatekit_ethosu.compiler import compile_program
        from delegatekit_ethosu.options import EthosUOptions
        from delegatekit_ethosu.runtime.verification import check_commands, check_numbers
        from delegatekit_ethosu.targets import TARGETS

        self.graph.output(output)
        program = self.tosa.write(self.graph)
        try:
            blob = pack(compile_program(program, EthosUOptions(target=target)))
            check_commands(blob, TARGETS[target])
            check_numbers(blob, program, TARGETS[target])
        except DelegateKitError as error:
            return error.what
        return None


def mil(function: Callable[..., Any], x: torch.Tensor) -> list[Any]:
    """The operations, but for constants, that coremltools converts a function to, with float32 precision."""
    try:
        import coremltools
    except ImportError as error:
        raise CannotRunHereError(f"coremltools is not installed ({error})") from error
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    exported = torch.export.export(Module(function), (x,), strict=False).run_decompositions({})
    target, precision = coremltools.target.iOS17, coremltools.precision.FLOAT32
    model = coremltools.convert(exported, minimum_deployment_target=target, compute_precision=precision)
    found = model._mil_program.functions["main"].operations
    return [operation for operation in found if operation.op_type != "const"]


def qnn_context(kind: str, shape: tuple[int, ...]) -> bytes:
    """The context of a float16 operation with one input and one output, compiled in this process."""
    try:
        from delegatekit_api import DelegateKitError
        from delegatekit_qnn.blob.spec import options_of
        from delegatekit_qnn.compiler.starting import installation
        from delegatekit_qnn.compiler.worker import Binding, UnusableError
        from delegatekit_qnn.options import QnnOptions
    except ImportError as error:
        raise CannotRunHereError(f"the QNN backend is not installed ({error})") from error
    try:
        binding = Binding(str(installation().folder), options_of(QnnOptions(), floats=True))
    except (DelegateKitError, UnusableError) as error:
        raise CannotRunHereError(str(error)) from error
    tensors = [
        {"name": name, "role": role, "type": "FLOAT_32", "shape": list(shape), "encoding": None}
        for name, role in (("x", "APP_WRITE"), ("y", "APP_READ"))
    ]
    node = {"name": "node", "kind": kind, "inputs": [0], "outputs": [1], "scalars": [], "arrays": []}
    binding.manager.InitContext(["forward"])
    operations = binding.operations({"tensors": tensors, "nodes": [node]}, None)
    return bytes(memoryview(binding.manager.Compile(["forward"], [operations])).cast("B"))


def vulkan_storages(function: Callable[..., Any], x: torch.Tensor, **options: Any) -> set[int]:
    """Storage types of the tensors in stock ExecuTorch's Vulkan delegate of a function, as numbers of its schema."""
    try:
        from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

        from delegatekit.pte import read
        from delegatekit_vulkan.blob.reader import parse
    except ImportError as error:
        raise CannotRunHereError(f"the Vulkan backend or executorch is not installed ({error})") from error
    file = read(lowered(function, [x], [VulkanPartitioner(options)]))
    graph, _ = parse(file.delegate_blob(file.program.execution_plan[0].delegates[0]))
    return {int(item.value.storage_type) for item in graph.values if hasattr(item.value, "storage_type")}
