"""The engines that `runtime.py` compares: how each one's file is made of a model, and how the file becomes a call.

An engine is asked for three things, in different processes: `build` writes its file, `load` makes a function of the
file, `start` does what loading needs first (imports, threads) and is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch

from delegatekit_conformance.models import ModelCase

Tensors = Sequence[torch.Tensor]
Call = Callable[[], Tensors]

#: Models whose products get int8 weights and whose activations are quantized call by call; the others are calibrated.
TRANSFORMERS = ("minilm", "bert-base", "vit-base", "llama-100m")


class Engine(Protocol):
    """One way to run a model."""

    name: str
    #: The file's suffix; empty if the engine runs the module itself.
    suffix: str

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Write the file. Raises NotImplementedError with the reason if the engine has nothing of the kind."""

    def start(self, threads: int) -> None:
        """Imports and threads that `load` needs."""

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """A function that computes the outputs. Only engines without a file need the model."""


def _exported(case: ModelCase) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(case.module, tuple(case.inputs), strict=False)


# -- PyTorch ---------------------------------------------------------------------------------------------------------


class Eager:
    """The module as it is, in float even if int8 is asked for."""

    name, suffix = "eager", ""

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Nothing."""

    def start(self, threads: int) -> None:
        """Set PyTorch's threads."""
        torch.set_num_threads(threads)

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """The module."""
        assert case is not None
        return _without_gradients(case.module, inputs)


class Compiled(Eager):
    """`torch.compile` with its default settings, which needs a C++ compiler. Float even if int8 is asked for."""

    name = "compile"

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """The compiled module."""
        assert case is not None
        return _without_gradients(torch.compile(case.module), inputs)


def _without_gradients(module: Any, inputs: Tensors) -> Call:
    def call() -> Tensors:
        with torch.no_grad():
            return (module(*inputs),)

    return call


# -- ExecuTorch ------------------------------------------------------------------------------------------------------


class _ExecuTorch:
    suffix = ".pte"

    def start(self, threads: int) -> None:
        """Set the threads of the runtime's pool."""
        from executorch.extension.pybindings import _C

        _C._unsafe_reset_threadpool(threads)

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """The method of the stock runtime."""
        from executorch.extension.pybindings import _C

        program = _C._load_program(str(path))
        method = program.load_method("forward")
        arguments = tuple(inputs)

        def call(keep: Any = program) -> Tensors:
            return method(arguments, clone_outputs=False)  # type: ignore[no-any-return]

        return call


class Ours(_ExecuTorch):
    """DelegateKit's file in the stock runtime."""

    name = "ours"
    options: Mapping[str, Any] = MappingProxyType({})

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Lower with XNNPACK; int8 by the scheme `int8`, or `int8-dynamic` for transformers."""
        import delegatekit

        model: Any = _exported(case)
        if int8:
            scheme = "int8-dynamic" if case.name in TRANSFORMERS else "int8"
            module = delegatekit.quantize(case.module, [tuple(case.inputs)], backend="xnnpack", scheme=scheme)
            with torch.no_grad():
                model = torch.export.export(module, tuple(case.inputs), strict=False)
        delegatekit.lower(model, backends=["xnnpack"], options={"xnnpack": self.options}).save(path)


class Whole(Ours):
    """The same without products in blocks."""

    name = "whole"
    options = MappingProxyType({"block_bytes": 0})


class Auto(_ExecuTorch):
    """DelegateKit's file as `-b auto` makes it: of XNNPACK and OpenVINO, what ExecuTorch's runtime is quickest with."""

    name = "auto"

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Tune, and lower as it says."""
        import delegatekit

        if int8:
            raise NotImplementedError("the two have schemes of their own")
        program = _exported(case)
        found = delegatekit.tune(program, backends=["xnnpack", "openvino"])
        delegatekit.lower(program, **delegatekit.placement(program, measurements=found)).save(path)


class Stock(_ExecuTorch):
    """ExecuTorch's own XNNPACK lowering, and its quantizer."""

    name = "stock"

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Partition with the stock partitioner."""
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        program = _stock_quantized(case) if int8 else _exported(case)
        edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
        with path.open("wb") as file:
            edge.to_executorch().write_to_file(file)


def _stock_quantized(case: ModelCase) -> torch.export.ExportedProgram:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    settings = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=case.name in TRANSFORMERS)
    inputs = tuple(case.inputs)
    quantizer = XNNPACKQuantizer()
    if case.name in TRANSFORMERS:
        # Everything would take the indices of embeddings along.
        quantizer.set_operator_type(torch.ops.aten.linear.default, settings)
    else:
        quantizer.set_global(settings)
    prepared = prepare_pt2e(_exported(case).module(check_guards=False), quantizer)
    with torch.no_grad():
        try:
            prepared(*inputs)
        except IndexError as error:  # MiniLM
            raise NotImplementedError("what stock prepares computes indices in float") from error
        return torch.export.export(convert_pt2e(prepared), inputs, strict=False)


# -- ONNX ------------------------------------------------------------------------------------------------------------


class OnnxRuntime:
    """ONNX Runtime's CPU provider, and its own quantization."""

    name, suffix = "onnxruntime", ".onnx"

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """Export to ONNX; int8 with scales for each output channel."""
        source = path.with_name("float.onnx") if int8 else path
        program = torch.onnx.export(
            case.module, tuple(case.inputs), dynamo=True, external_data=False, verbose=False, optimize=True
        )
        assert program is not None
        program.save(source)
        if not int8:
            return
        from onnxruntime import quantization
        from onnxruntime.quantization.shape_inference import quant_pre_process

        prepared = path.with_name("prepared.onnx")
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if case.name in TRANSFORMERS:
            quantization.quantize_dynamic(prepared, path, per_channel=True, weight_type=quantization.QuantType.QInt8)
            return
        names = [value.name for value in program.model.graph.inputs]
        feed = {name: tensor.numpy() for name, tensor in zip(names, case.inputs, strict=True)}

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.feeds = iter([feed])

            def get_next(self) -> dict[str, Any] | None:
                return next(self.feeds, None)

        quantization.quantize_static(prepared, path, Reader(), per_channel=True)

    def start(self, threads: int) -> None:
        """Remember the threads: they are an option of the session."""
        import onnxruntime

        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = 3
        # Threads that wait by spinning would slow down the engine that comes next.
        self._options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """A session."""
        import onnxruntime

        session = onnxruntime.InferenceSession(path, self._options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        feed = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
        return lambda: [torch.from_numpy(value) for value in session.run(None, feed)]


class OpenVino:
    """OpenVINO's CPU plugin, on the ONNX file of the engine before."""

    name, suffix = "openvino", ".onnx"

    def build(self, case: ModelCase, path: Path, *, int8: bool) -> None:
        """The same file. OpenVINO quantizes no activations call by call here."""
        if int8 and case.name in TRANSFORMERS:
            raise NotImplementedError("ONNX's dynamic quantization is for ONNX Runtime")
        if not path.exists():
            OnnxRuntime().build(case, path, int8=int8)

    def start(self, threads: int) -> None:
        """Remember the threads: they are a property of the compiled model."""
        os.environ.setdefault("OPENVINO_TELEMETRY_ENABLED", "0")
        import openvino

        self._core = openvino.Core()
        # Without the last one, float32 models are computed in bfloat16 where the processor has it.
        self._settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }

    def load(self, path: Path, inputs: Tensors, case: ModelCase | None) -> Call:
        """A request of the compiled model."""
        request = self._core.compile_model(str(path), "CPU", self._settings).create_infer_request()
        arrays = [tensor.numpy() for tensor in inputs]

        def call() -> Tensors:
            results = request.infer(arrays, share_inputs=True, share_outputs=True)
            return [torch.from_numpy(value) for value in results.values()]

        return call


ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (Ours(), Whole(), Auto(), Stock(), Eager(), Compiled(), OnnxRuntime(), OpenVino())
}


@dataclass(frozen=True)
class Files:
    """The paths of one model's files."""

    folder: Path

    def inputs(self) -> Path:
        """The example inputs, by `torch.save`."""
        return self.folder / "inputs.pt"

    def of(self, engine: Engine) -> Path:
        """The file of an engine; those that read the same format of other projects share it."""
        return self.folder / ("model.onnx" if engine.suffix == ".onnx" else engine.name + engine.suffix)
