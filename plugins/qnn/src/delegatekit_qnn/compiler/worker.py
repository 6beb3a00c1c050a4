"""The process that talks to Qualcomm's compiler, through ExecuTorch's public binding of it.

It imports neither torch nor more of this package: each context has a process, which takes longer to start than to
compile a small graph.

    python -m delegatekit_qnn.compiler.worker LIBRARIES compile REQUEST CONSTANTS CONTEXT
    python -m delegatekit_qnn.compiler.worker LIBRARIES validate

`LIBRARIES` are their paths, in loading order. `compile` gets the descriptors of three open files. `validate` answers
requests: whether the library works here, and supports an operation. The library's output is kept off stdout.
"""

from __future__ import annotations

import base64
import ctypes
import json
import mmap
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from delegatekit_toolkit.processes import answer

#: In this order, before the vendor's libraries: these bring an unwinder of their own, which must not be found first.
_FIRST: Final = ("libgcc_s.so.1", "libstdc++.so.6")
#: The library's own package of operations.
_PACKAGE: Final = "qti.aisw"
#: Prefix of this process's message about its own end (`words.MARK`).
_MARK: Final = "delegatekit: "
#: Bytes of the library's output about an operation that are passed on.
_MOST_SAID: Final = 1 << 16


class UnusableError(Exception):
    """The library does not work here, or refuses its input; the message has the reason in words."""


class Binding:
    """The vendor's library for one set of options."""

    def __init__(self, libraries: str, options: bytes) -> None:
        try:
            for name in (*_FIRST, *libraries.split(os.pathsep)):
                ctypes.CDLL(name)
        except OSError as error:
            raise UnusableError(f"cannot be loaded: {error}") from error
        try:
            import numpy
            from executorch.backends.qualcomm.python import PyQnnManagerAdaptor
        except ImportError as error:
            raise UnusableError(f"needs PyQnnManagerAdaptor, which cannot be imported: {error}") from error

        self._numpy: Any = numpy
        self.api: Any = PyQnnManagerAdaptor
        self.manager: Any = self.api.QnnManager(options)
        if self.manager.InitBackend() != self.api.Error.Ok:
            raise UnusableError("could not create its backend or device")

    def operations(self, graph: Any, constants: Any) -> list[Any]:
        """The operations of a graph; `constants` are its bytes, None if only shapes matter."""
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
        encoding, values = self._encoding(item.get("encoding"))
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

    def _encoding(self, encoding: Any) -> tuple[str, dict[str, Any]]:
        """Name and values of a quantization. QNN's offset is minus the zero point."""
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


def compile_graphs(libraries: str, request_file: int, constants_file: int, context_file: int) -> None:
    """Compile the graphs of a request into one context."""
    with os.fdopen(request_file, "rb") as file:
        file.seek(0)
        request = json.load(file)
    constants = mmap.mmap(constants_file, 0, prot=mmap.PROT_READ)
    binding = Binding(libraries, base64.b64decode(request["options"]))
    names = [graph["name"] for graph in request["graphs"]]
    if binding.manager.InitContext(names) != binding.api.Error.Ok:
        raise UnusableError("could not create a context")
    operations = [binding.operations(graph, constants) for graph in request["graphs"]]
    context = binding.manager.Compile(names, operations)
    if not len(context):
        raise UnusableError("compiled nothing")
    with os.fdopen(context_file, "wb") as file:
        file.seek(0)
        file.write(memoryview(context).cast("B"))


def validate(libraries: str, printed: int) -> None:
    """Answer whether the library works, and supports operations; its output is in the file `printed`."""
    binding: Binding | None = None

    def reply(question: bytes) -> bytes:
        nonlocal binding
        request = json.loads(question)
        try:
            if binding is None:
                binding = Binding(libraries, base64.b64decode(request["options"]))
                if binding.manager.InitContext(["forward"]) != binding.api.Error.Ok:
                    raise UnusableError("could not create a context")
        except UnusableError as error:
            return json.dumps({"broken": str(error), "said": _said(printed)}).encode()
        if "graph" not in request:
            return b"{}"
        os.ftruncate(printed, 0)
        os.lseek(printed, 0, os.SEEK_SET)
        return json.dumps({"taken": _takes(binding, request["graph"]), "said": _said(printed)}).encode()

    os.dup2(printed, 2)
    answer(reply)


def _takes(binding: Binding, graph: Any) -> bool:
    try:
        operations = binding.operations(graph, None)
        return all(binding.manager.IsNodeSupportedByBackend([item]) for item in operations)
    except Exception as error:  # whatever the binding raises about its input
        print(f"{_MARK}{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return False


def _said(printed: int) -> str:
    """The output since the file was emptied."""
    ctypes.CDLL(None).fflush(None)
    return os.pread(printed, _MOST_SAID, 0).decode(errors="replace")


def main(arguments: Sequence[str]) -> NoReturn:
    """Run the command of the module's docstring."""
    libraries, task, *rest = arguments
    code = 0
    try:
        if task == "compile":
            compile_graphs(libraries, *map(int, rest))
        else:
            with tempfile.TemporaryFile() as printed:
                validate(libraries, printed.fileno())
    except UnusableError as error:
        print(f"{_MARK}{error}", file=sys.stderr)
        code = 1
    except MemoryError:
        print(f"{_MARK}had not enough memory", file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    # Do not wait for the library's own teardown, with its threads.
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
