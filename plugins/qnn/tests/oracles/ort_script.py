"""Runs the network of test_onnxruntime.py as ONNX through ONNX Runtime with QNN's plugin:

ort_script.py NUMBERS RESULT
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxruntime_qnn
from onnx import TensorProto, helper, numpy_helper


def model(numbers: Any) -> onnx.ModelProto:
    """conv, relu, linear; quantized if the numbers have scales."""
    fixed = "x_scale" in numbers
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, data: Any) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(data), name))
        return name

    def weight(name: str) -> str:
        if not fixed:
            return constant(name, numbers[name])
        scale = constant(f"{name}_scale", numbers[f"{name}_scale"].astype(np.float32))
        zeros = constant(f"{name}_zero", np.zeros(len(numbers[f"{name}_scale"]), numbers[name].dtype))
        constant(f"{name}_integers", numbers[name])
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_integers", scale, zeros], [name], axis=0))
        return name

    def activation(name: str, source: str) -> str:
        if not fixed:
            return source
        scale = constant(f"{name}_scale", np.float32(numbers[f"{name}_scale"]))
        zero = constant(f"{name}_zero", numbers[f"{name}_zero"])
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [f"{name}_integers"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_integers", scale, zero], [f"{name}_back"]))
        return f"{name}_back"

    x = activation("x", "input")
    nodes.append(
        helper.make_node("Conv", [x, weight("conv"), weight("conv_bias")], ["made"], pads=[1, 1, 1, 1], strides=[2, 2])
    )
    nodes.append(helper.make_node("Relu", ["made"], ["positive"]))
    y = activation("y", "positive")
    shape = constant("shape", np.array([1, -1], np.int64))
    nodes.append(helper.make_node("Reshape", [y, shape], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", weight("head"), weight("head_bias")], ["out"], transB=1))
    result = activation("z", "out")
    sizes = numbers["input"].shape, numbers["wanted"].shape
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, sizes[0])]
    outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, sizes[1])]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(made)
    return made


def main(numbers_file: str, result_file: str) -> None:
    """Everything must run in QNN: nothing is left to the CPU."""
    numbers = dict(np.load(numbers_file))
    onnxruntime.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
    devices = [item for item in onnxruntime.get_ep_devices() if item.ep_name == "QNNExecutionProvider"]
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    chip = {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "soc_model": "57", "htp_arch": "75"}
    options.add_provider_for_devices(devices, chip)
    session = onnxruntime.InferenceSession(model(numbers).SerializeToString(), options)
    np.save(result_file, session.run(None, {"input": numbers["input"]})[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
