"""The process that talks to Qualcomm's compiler, through ExecuTorch's public binding of it. It imports no torch.

    python worker.py LIBRARIES compile FOLDER    reads request.json and constants.bin, writes context.bin
    python worker.py LIBRARIES validate          answers a request a line: whether the library takes its operation

What the library prints goes to stderr: stdout has answers only.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, Final

#: In this order, before the vendor's libraries: these bring an unwinder of their own, which must not be found first.
_FIRST: Final = ("libgcc_s.so.1", "libstdc++.so.6")
_LIBRARIES: Final = ("libQnnHtp.so", "libQnnSystem.so")
#: The package of operations that the library itself has.
_PACKAGE: Final = "qti.aisw"


class Binding:
    """The vendor's library for one set of options."""

    def __init__(self, libraries: str, options: bytes) -> None:
        for name in _FIRST:
            ctypes.CDLL(name)
        for name in _LIBRARIES:
            ctypes.CDLL(f"{libraries}/{name}")
        import numpy
        from executorch.backends.qualcomm.python import PyQnnManagerAdaptor

        self._numpy: Any = numpy
        self.api: Any = PyQnnManagerAdaptor
        self.manager: Any = self.api.QnnManager(options)
        if self.manager.InitBackend() != self.api.Error.Ok:
            raise SystemExit("the library's backend or device could not be created")

    def operations(self, graph: Any, constants: Any) -> list[Any]:
        """The operations of a graph; `constants` are its bytes, None where only forms matter."""
        tensors = [self._tensor(item, constants) for item in graph["tensors"]]
        return [self._operation(item, tensors) for item in graph["nodes"]]

    def _tensor(self, item: Any, constants: Any) -> Any:
        np = self._numpy
        data = np.array([])
        if item["role"] == "STATIC":
            dtype = np.dtype(item["numpy"])
            if constants is None:
                data = np.zeros(item["shape"], dtype)
            else:
                count = int(np.prod(item["shape"], dtype=np.int64))
                data = np.frombuffer(constants, dtype, count, item["offset"]).reshape(item["shape"])
        encoding, values = self._encoding(item.get("encoding"), item["numpy"])
        return self.api.TensorWrapper(
            item["name"],
            getattr(self.api.Qnn_TensorType_t, f"QNN_TENSOR_TYPE_{item['role']}"),
            self._type(item["type"]),
            getattr(self.api.Qnn_QuantizationEncoding_t, f"QNN_QUANTIZATION_ENCODING_{encoding}"),
            values,
            len(item["shape"]),
            item["shape"],
            [],
            data,
            item["role"] == "STATIC",
        )

    def _encoding(self, encoding: Any, dtype: str) -> tuple[str, dict[str, Any]]:
        """Name and values of how integers stand for numbers. QNN's offset is minus the zero point."""
        if encoding is None:
            return "UNDEFINED", {}
        values: dict[str, Any] = {}
        name = "SCALE_OFFSET"
        if encoding["axis"] is None:
            values |= {"scale": encoding["scales"][0], "offset": -encoding["zero_points"][0]}
        else:
            pairs = self._numpy.empty(len(encoding["scales"]), dtype=[("scale", "<f4"), ("offset", "<i4")])
            pairs["scale"] = encoding["scales"]
            pairs["offset"] = [-item for item in encoding["zero_points"]]
            values |= {"scale_offset": pairs, "axis": encoding["axis"]}
            name = f"AXIS_{name}"
        if encoding["bits"] is not None:
            values["bitwidth"] = encoding["bits"]
            name = f"BW_{name}"
        return name, values

    def _operation(self, item: Any, tensors: list[Any]) -> Any:
        made = self.api.PyQnnOpWrapper(item["name"], _PACKAGE, item["kind"])
        made.AddInputTensors([tensors[index] for index in item["inputs"]])
        made.AddOutputTensors([tensors[index] for index in item["outputs"]])
        for name, kind, value in item["scalars"]:
            number = value if kind == "BOOL_8" else self._numpy.dtype(_SCALARS[kind]).type(value)
            made.AddScalarParam(name, self._type(kind), {"data": number})
        for name, kind, shape, values in item["arrays"]:
            data = self._numpy.array(values, dtype=_SCALARS[kind]).reshape(shape)
            made.AddTensorParam(name, self._type(kind), len(shape), shape, data, True)
        return made.GetOpWrapper()

    def _type(self, name: str) -> Any:
        return getattr(self.api.Qnn_DataType_t, f"QNN_DATATYPE_{name}")


_SCALARS: Final = {"UINT_32": "<u4", "INT_32": "<i4", "FLOAT_32": "<f4"}


def compile_graphs(libraries: str, folder: Path) -> None:
    """Compile the graphs of a request into one context."""
    request = json.loads((folder / "request.json").read_text("utf-8"))
    constants = (folder / "constants.bin").read_bytes()
    binding = Binding(libraries, base64.b64decode(request["options"]))
    names = [graph["name"] for graph in request["graphs"]]
    if binding.manager.InitContext(names) != binding.api.Error.Ok:
        raise SystemExit("the library's context could not be created")
    operations = [binding.operations(graph, constants) for graph in request["graphs"]]
    context = binding.manager.Compile(names, operations)
    if not len(context):
        raise SystemExit("the library compiled nothing")
    part = folder / "context.part"
    part.write_bytes(memoryview(context).cast("B"))
    part.rename(folder / "context.bin")


def validate(libraries: str, answers: IO[str], printed: IO[str]) -> None:
    """Answer whether the library takes operations, a request and an answer a line."""
    binding: Binding | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if binding is None:
            binding = Binding(libraries, base64.b64decode(request["options"]))
            if binding.manager.InitContext(["forward"]) != binding.api.Error.Ok:
                raise SystemExit("the library's context could not be created")
        sys.stderr.flush()
        start = os.lseek(printed.fileno(), 0, os.SEEK_END)
        operations = binding.operations(request["graph"], None)
        taken = all(binding.manager.IsNodeSupportedByBackend([item]) for item in operations)
        said = os.pread(printed.fileno(), 1 << 16, start).decode(errors="replace")
        answers.write(json.dumps({"taken": taken, "said": said}) + "\n")
        answers.flush()


def main() -> None:
    """What the module's description says."""
    libraries, task, *rest = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    if task == "compile":
        os.dup2(2, 1)
        compile_graphs(libraries, Path(rest[0]))
    else:
        printed = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long as the process)
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        validate(libraries, answers, printed)
    # The library's own end, with its threads, is nothing to wait for.
    os._exit(0)


if __name__ == "__main__":
    main()
