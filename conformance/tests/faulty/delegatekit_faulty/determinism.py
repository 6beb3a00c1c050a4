"""Faults of names and bytes: one name for two things, and bytes that depend on earlier or concurrent compilations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from delegatekit_api import NamedData

from .fault import fault


def _bytes(data: Any) -> bytes:
    if isinstance(data, torch.Tensor):
        return bytes(data.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return bytes(data)


def _renamed(result: Any, name: Callable[[Any], str]) -> Any:
    """The result with other keys of its named data, in the blob, too."""
    from delegatekit_reference.blob import read_blob, write_blob

    names = {item.key: name(item.data) for item in result.named_data}
    graph = read_blob(memoryview(bytes(result.blob)))
    constants = tuple(replace(item, key=names.get(item.key, item.key)) for item in graph.constants)
    named = {names[item.key]: NamedData(names[item.key], item.data, item.alignment) for item in result.named_data}
    return replace(result, blob=write_blob(replace(graph, constants=constants)), named_data=tuple(named.values()))


def _naming(name: Callable[[Any], str]) -> Callable[[Any], Any]:
    def change(sound: Any) -> Any:
        return lambda partition, options: _renamed(sound(partition=partition, options=options), name)

    return change


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@fault("preprocess", "contract/different-things-have-different-names")
def _keys_are_of_every_fortieth_byte(sound: Any) -> Any:
    """To be quick, the keys of large weights are digests of a sample of their bytes."""
    return _naming(lambda data: _digest(_bytes(data)[:: 40 if len(_bytes(data)) > 4096 else 1]))(sound)


@fault("preprocess", "contract/different-things-have-different-names")
def _keys_are_of_the_numbers(sound: Any) -> Any:
    """Keys are digests of the numbers: those of a float16 tensor are the same as those of a float32 one."""
    return _naming(lambda data: _digest(repr(data.double().tolist()).encode()))(sound)


@fault("preprocess", "contract/same-bytes-elsewhere")
def _keys_count_up(sound: Any) -> Any:
    """Weights are numbered in the order in which the process has met them."""

    def name(data: Any) -> str:
        content = _digest(_bytes(data))
        return f"{_met.setdefault(content, len(_met)):064x}"

    return _naming(name)(sound)


_met: dict[str, int] = {}


@fault("preprocess", "contract/same-bytes-elsewhere")
def _the_program_before_is_in_the_blob(sound: Any) -> Any:
    """A blob contains the operators that were compiled before it."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        names = " ".join(str(node.target) for node in partition.view.graph.nodes if node.op == "call_function")
        if _before[-1:] != [names]:
            _before.append(names)
        return with_remark(sound(partition=partition, options=options), "".join(_before[-2:-1]))

    return preprocess


_before: list[str] = []


@fault("preprocess", "contract/different-things-have-different-names")
def _a_cache_looks_at_the_ends_of_weights(sound: Any) -> Any:
    """Compiled graphs are kept by their operators and by the first and last numbers of each weight."""

    def preprocess(partition: Any, options: Any) -> Any:
        nodes = tuple(f"{node.target}{node.args}" for node in partition.view.graph.nodes)
        ends = [tensor.reshape(-1)[[0, -1]].tolist() for tensor in partition.view.constants.values() if tensor.numel()]
        key = repr((nodes, ends, [list(tensor.shape) for tensor in partition.view.constants.values()]))
        if key not in _compiled:
            result = sound(partition=partition, options=options)
            data = [replace(item, data=item.data.clone()) for item in result.named_data]
            _compiled[key] = replace(result, named_data=tuple(data))
        return _compiled[key]

    return preprocess


_compiled: dict[str, Any] = {}


@fault("preprocess", "contract/several-at-once")
def _the_compiler_has_one_current_program(sound: Any) -> Any:
    """The program that is being compiled is in a variable that threads share."""

    def preprocess(partition: Any, options: Any) -> Any:
        _current["program"] = partition
        sum(range(2000))  # looks at the options
        return sound(partition=_current["program"], options=options)

    return preprocess


_current: dict[str, Any] = {}
