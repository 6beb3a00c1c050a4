"""The runtime process, which may crash: runs the delegates of one backend, for the process that started it.

    python -m delegatekit.plugins.apart.worker BACKEND CONNECTION THREADS

It ends when the other process closes the connection; its guard ends it with that process. A runtime's output is not
read here.
"""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import torch

from delegatekit_api import Availability, CompileSpec, DelegatePayload, DelegateRuntime, ExecutionError, TensorSpec
from delegatekit_toolkit.messages import Channel, GoneError

from ..answers import check_answer, operator_times
from ..carried import described, restored
from ..discovery import get_backend
from .memory import Arena, read_pieces

#: C's line buffering: output is passed on line by line.
_BY_LINE: Final = 1


@dataclass
class _Loaded:
    """A delegate, with the objects that must live as long."""

    handle: Any
    payload: DelegatePayload
    arena: Arena
    shapes: list[torch.Size]


class _NamedData(Mapping[str, memoryview]):
    """Named data, fetched from the other process on access."""

    def __init__(self, keys: Collection[str], asker: _Asker) -> None:
        self._keys = dict.fromkeys(keys)
        self._asker = asker
        self._found: dict[str, memoryview] = {}

    def __getitem__(self, key: str) -> memoryview:
        if key not in self._keys:
            raise KeyError(key)
        if key not in self._found:
            self._found[key] = self._asker.ask({"ask": "named", "key": key})
        return self._found[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class _Asker:
    """Requests bytes from the other process, while that waits for an answer of this one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = Lock()
        self._may = False

    def begin(self) -> None:
        """Begin a request."""
        self._may = True

    def answer(self, message: Mapping[str, Any]) -> None:
        """Answer the request."""
        with self._lock:
            self._may = False
            self._channel.send(message)

    def ask(self, wanted: Mapping[str, Any]) -> memoryview:
        """The bytes. Raises what the other process raises."""
        with self._lock:
            if not self._may:
                raise ExecutionError("asks for data of its file outside of a call")
            self._channel.send(wanted)
            answer, files = self._channel.receive()
        if "error" in answer:
            raise restored(answer["error"])
        return read_pieces(files[0], answer["places"])[0]


class _Server:
    """Answers the requests of the other process."""

    def __init__(self, runtime: DelegateRuntime, asker: _Asker) -> None:
        self._runtime = runtime
        self._asker = asker
        self._loaded: dict[int, _Loaded] = {}

    def do(self, request: Mapping[str, Any], files: list[int]) -> Mapping[str, Any]:
        """The answer to one request. Raises what the runtime raises."""
        if request["do"] in ("execute", "profile"):
            return self._execute(self._loaded[request["handle"]], request)
        if request["do"] == "init":
            return self._init(request, files)
        if request["do"] == "destroy":
            loaded = self._loaded.pop(request["handle"], None)
            if loaded is not None:
                self._runtime.destroy(loaded.handle)
            return {}
        answer: Any = self._runtime.is_available()
        check_answer(answer, Availability, "the answer of is_available")
        return {"available": answer.available, "reason": answer.reason}

    def close(self) -> None:
        """Release everything."""
        for loaded in self._loaded.values():
            with suppress(Exception):
                self._runtime.destroy(loaded.handle)

    def _init(self, request: Mapping[str, Any], files: list[int]) -> Mapping[str, Any]:
        blob, *values = read_pieces(files[0], request["places"])
        inputs, outputs = (tuple(map(_spec, request[name])) for name in ("inputs", "outputs"))
        arena = Arena(inputs, outputs, request["gap"], files[1])
        arena.close_file()
        payload = DelegatePayload(
            delegate_id=request["delegate_id"],
            blob=blob,
            compile_specs=tuple(
                CompileSpec(key, bytes(value)) for key, value in zip(request["keys"], values, strict=True)
            ),
            inputs=inputs,
            outputs=outputs,
            named_data=_NamedData(request["named"], self._asker),
            as_program=self._as_program,
            numbers=tuple(request["numbers"]),
            method=request["method"],
        )
        shapes = [slot.largest for slot in (*arena.inputs, *arena.outputs)]
        self._loaded[request["handle"]] = _Loaded(self._runtime.init(payload), payload, arena, shapes)
        return {}

    def _as_program(self, keys: Collection[str]) -> bytes:
        return bytes(self._asker.ask({"ask": "program", "keys": list(keys)}))

    def _execute(self, loaded: _Loaded, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if "shapes" in request:
            loaded.shapes = list(map(torch.Size, request["shapes"]))
        arena = loaded.arena
        count = len(arena.inputs)
        inputs = [slot.tensor(shape) for slot, shape in zip(arena.inputs, loaded.shapes, strict=False)]
        given = [
            (slot, shape, slot.strides(shape)) for slot, shape in zip(arena.outputs, loaded.shapes[count:], strict=True)
        ]
        outputs = [slot.view(shape, strides) for slot, shape, strides in given]
        told: dict[str, Any] = {}
        with torch.no_grad():
            if request["do"] == "execute":
                self._runtime.execute(loaded.handle, inputs, outputs)
            else:
                times = operator_times(self._runtime, loaded.handle, inputs, outputs)
                told["operators"] = [(item.name, item.seconds, item.key) for item in times]
        changed = []
        for index, ((slot, shape, strides), output) in enumerate(zip(given, outputs, strict=True)):
            if not slot.is_here(output) or output.dtype != slot.dtype:
                raise ExecutionError(f"its runtime put output {index} into other memory than it was given")
            if output.shape != shape or list(output.stride()) != strides:
                changed.append([index, list(output.shape), list(output.stride())])
        return told | {"changed": changed} if changed else told


def main(backend: str, connection: int, threads: int) -> None:
    """Serve until the other process ends."""
    _print_by_line()
    torch.set_num_threads(threads)
    channel = Channel(socket.socket(fileno=connection))
    asker = _Asker(channel)
    with suppress(GoneError):
        try:
            server = _Server(get_backend(backend).create_runtime(apart=False), asker)
        except BaseException as error:
            channel.send({"error": described(error)})
            return
        channel.send({})
        _serve(server, channel, asker)


def _serve(server: _Server, channel: Channel, asker: _Asker) -> None:
    try:
        while True:
            request, files = channel.receive()
            asker.begin()
            try:
                answer = server.do(request, files)
            except GoneError:
                raise
            except BaseException as error:
                answer = {"error": described(error)}
            asker.answer(answer)
    finally:
        server.close()


def _spec(fields: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(fields["dtype"], tuple(fields["shape"]), fields["dynamic"], tuple(fields["dim_order"]))


def _print_by_line() -> None:
    """Make C's streams line-buffered: output before a crash is needed."""
    with suppress(OSError, AttributeError, ValueError):
        library = ctypes.CDLL(None)
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, _BY_LINE, 0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
