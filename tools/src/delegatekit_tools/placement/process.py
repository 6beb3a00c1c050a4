"""The process in which files are timed: ExecuTorch's own runtime, as `python -m delegatekit_tools.placement.process`.

It answers questions in JSON (`delegatekit_toolkit.processes`), each with what to do and its arguments: `start`,
`alone`, `rounds` or `record`. An answer has "fault" if that failed.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final

import torch

from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.processes import answer
from delegatekit_toolkit.stock import binding_with_all_kernels

from .rounds import times_alone, times_in_rounds

#: Ranks of tensors that may be in channels-last order.
_IMAGE: Final = 4


def start(backends: Mapping[str, str], threads: int) -> dict[str, Any]:
    """Load the runtime, with delegates of installed plugins for backends (name -> delegate id) that it does not have.

    `threads` of 0 leaves the runtime its own number. The answer has the runtime's version, its number of threads, and
    for each backend whose delegates do not run there the reason.
    """
    found = binding_with_all_kernels()
    if threads:
        found._unsafe_reset_threadpool(threads)
        torch.set_num_threads(threads)
    own = set(found._get_registered_backend_names())
    needed = [name for name, identifier in backends.items() if identifier not in own]
    unhosted = _host(needed) if needed else ""
    refused = {name: reason for name, identifier in backends.items() if (reason := _refusal(name, identifier, own))}
    if unhosted:
        refused = {name: unhosted if backends[name] not in own else reason for name, reason in refused.items()}
    return {
        "runtime": f"executorch {version('executorch')}",
        "threads": found._threadpool_get_thread_count(),
        "refused": refused,
    }


def _host(needed: Sequence[str]) -> str:
    """Have the plugins of these backends run their delegates in the runtime; the reason if that cannot be, or ""."""
    if find_spec("delegatekit_executorch") is None:
        return "ExecuTorch's wheel does not have its delegate; pip install delegatekit-executorch adds it"
    os.environ["DELEGATEKIT_BACKENDS"] = ",".join(needed)  # the others need not be loaded
    try:
        import_module("delegatekit_executorch.host").register()
    except Exception as error:
        return f"its plugin's runtime cannot run in ExecuTorch's: {error}"
    return ""


def _refusal(name: str, identifier: str, own: set[str]) -> str:
    """Reason why the delegates of a backend do not run in this process; empty if they do."""
    found = binding_with_all_kernels()
    if identifier not in found._get_registered_backend_names():
        return "ExecuTorch's runtime does not have its delegate"
    if identifier in own and not found._is_available(identifier):
        # Its library may be found only after the plugin has loaded what it needs.
        with suppress(Exception):
            from delegatekit.plugins import get_backend

            get_backend(name).runtime_availability(apart=False)
    return (
        "" if found._is_available(identifier) else "its delegate in ExecuTorch's runtime says that it cannot run here"
    )


class _File:
    """A file with the inputs of each of its methods: a call runs all, one after the other."""

    def __init__(self, path: str, inputs: Mapping[str, str]) -> None:
        self._program = binding_with_all_kernels()._load_program(path)
        self._inputs = {name: _inputs(place) for name, place in inputs.items()}
        self._methods = {name: self._program.load_method(name) for name in inputs}

    def __call__(self) -> None:
        for name, values in self._inputs.items():
            try:
                self._methods[name](values, clone_outputs=False)
            except RuntimeError:  # perhaps its state is full after so many calls: it begins anew
                self._methods[name] = self._program.load_method(name)
                self._methods[name](values, clone_outputs=False)


def alone(file: str, inputs: Mapping[str, str], **limits: Any) -> dict[str, Any]:
    """Seconds of calls of one file."""
    return {"seconds": times_alone(_File(file, inputs), **limits)}


def rounds(files: Sequence[str], inputs: Mapping[str, str], **limits: Any) -> dict[str, Any]:
    """Seconds of calls of several files in rounds."""
    return {"seconds": times_in_rounds([_File(file, inputs) for file in files], **limits)}


def record(file: str, method: str, inputs: str, dump: str, **limits: Any) -> dict[str, Any]:
    """Write an ETDump of some calls of a method."""
    module = binding_with_all_kernels()._load_for_executorch(file, enable_etdump=True)
    values = _inputs(inputs)
    times_alone(lambda: module.run_method(method, values, clone_outputs=False), **limits)
    module.write_etdump_result_to_file(dump)
    return {}


def _inputs(place: str) -> tuple[Any, ...]:
    return tuple(map(_dense, torch.load(place, weights_only=True)))


def _dense(value: Any) -> Any:
    """A tensor without gaps. An image in channels-last order stays so: its file was made for that order."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() == _IMAGE and value.is_contiguous(memory_format=torch.channels_last):
        return value.detach()
    return value.detach().contiguous()


_DOES: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "start": start,
    "alone": alone,
    "rounds": rounds,
    "record": record,
}


def _reply(question: bytes) -> bytes:
    asked = json.loads(question)
    earlier = _hosted_error()
    try:
        found = _DOES[asked.pop("do")](**asked)
    except Exception as error:
        told = _hosted_error()
        found = {"fault": f"{error}" if told is None or told is earlier else f"{error}: {told}"}
    return to_json(found, compact=True).encode()


def _hosted_error() -> BaseException | None:
    """The last error of a delegate that a plugin ran here."""
    host = sys.modules.get("delegatekit_executorch.host")
    return host.last_error() if host is not None else None


if __name__ == "__main__":
    answer(_reply)
