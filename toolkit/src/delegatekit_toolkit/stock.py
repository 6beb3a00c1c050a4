"""Stock ExecuTorch: runs a delegate in it, for backends whose delegate is built into that library; and its binding.

ExecuTorch's low-level binding is used: its Python layer would import the whole stock stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import Availability, DelegatePayload, ExecutionError, FormatError
from delegatekit_api.profiling import OperatorTime

from .capture import quiet
from .dtypes import dtype_name
from .etdump import ProfileEvent, read_events
from .signature import store_results

if TYPE_CHECKING:
    from collections.abc import Collection

    import torch

#: ExecuTorch's error codes, if they mean the same for every delegate.
_ERRORS: Final = {
    0x01: "internal error",
    0x10: "not supported: the result's shape is not the declared one",
    0x12: "invalid argument",
    0x20: "not found: a constant is missing",
    0x21: "out of memory",
    0x23: "invalid program",
    0x30: "incompatible delegate blob",
    0x31: "out of memory in the delegate",
}


class StockDelegate:
    """A delegate loaded by stock ExecuTorch. It does not keep the program's bytes alive: this object does."""

    def __init__(
        self,
        payload: DelegatePayload,
        keys: Collection[str],
        *,
        where: str,
        errors: Mapping[int, str] | None = None,
        change: Callable[[bytes], bytes] = bytes,
        watched: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`keys` are the named data that it reads; `errors` maps codes to their meaning for this delegate; `change` is
        applied to the program's bytes before they are loaded, `watched` is applied instead to load a delegate that
        reports its runs.

        Raises FormatError, which names `where`, for data that stock ExecuTorch does not load.
        """
        self._where: Final = where
        self._errors: Final = _ERRORS | dict(errors or {})
        self._outputs: Final = payload.outputs
        self._name: Final = payload.method
        self._watching: Any = None
        self._watched_data = b""
        self._data = change(payload.as_program(keys))
        self._change_watched: Final = None if watched is None else lambda: watched(payload.as_program(keys))
        try:
            self._program = _binding()._load_program_from_buffer(self._data)
            self._method = self._program.load_method(payload.method)
        except RuntimeError as error:
            raise FormatError(f"does not load: {self._explained(error)}", where=where) from error

    def execute(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once; results may be smaller than `outputs` if these are dynamic. Raises ExecutionError."""
        self._run(lambda: self._method(tuple(inputs), clone_outputs=False), outputs)

    def profile(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[OperatorTime]:
        """As `execute`, and the times of the delegate's operators, by the delegate's own names for them.

        The delegate is loaded a second time for this and stays loaded as long as this one. Raises ExecutionError.
        """
        return [
            OperatorTime(event.delegate_debug_id_str, (event.end_time - event.start_time) * 1e-9)
            for event in self.events(inputs, outputs)
            if event.delegate_debug_id_str
        ]

    def events(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> list[ProfileEvent]:
        """As `profile`, but all events unprocessed: the meaning of a delegate's times is specific to it."""
        self._run(lambda: self._watched().run_method(self._name, tuple(inputs), clone_outputs=False), outputs)
        with NamedTemporaryFile(prefix="delegatekit-") as file:
            self._watched().write_etdump_result_to_file(file.name)
            return read_events(file.read())

    def _watched(self) -> Any:
        """The program, loaded so that it reports its runs."""
        if self._watching is None:
            self._watched_data = self._data if self._change_watched is None else self._change_watched()
            self._watching = _binding()._load_for_executorch_from_buffer(self._watched_data, enable_etdump=True)
        return self._watching

    def _run(self, call: Callable[[], Sequence[torch.Tensor]], outputs: Sequence[torch.Tensor]) -> None:
        if self._method is None:
            raise ExecutionError("was destroyed", where=self._where)
        if len(outputs) != len(self._outputs):
            raise ExecutionError(f"has {len(self._outputs)} outputs, got {len(outputs)}", where=self._where)
        try:
            results = call()
        except RuntimeError as error:
            raise ExecutionError(f"failed: {self._explained(error)}", where=self._where) from error
        for output, result, spec in zip(outputs, results, self._outputs, strict=True):
            if output.dtype != result.dtype or not (spec.dynamic or output.shape == result.shape):
                found, wanted = (f"{dtype_name(item.dtype)} {tuple(item.shape)}" for item in (output, result))
                raise ExecutionError(f"an output is {found}, the result {wanted}", where=self._where)
        store_results(outputs, results)

    def destroy(self) -> None:
        """Release it; calling twice is harmless."""
        self._method = self._program = self._watching = None
        self._data = self._watched_data = b""

    def _explained(self, error: RuntimeError) -> str:
        """The binding's message with the meaning of its hexadecimal code."""
        code = re.search(r"0x:?([0-9a-fA-F]+)", str(error))
        meaning = self._errors.get(int(code[1], 16)) if code else None
        return f"{error}" if meaning is None else f"{meaning} ({error})"


def stock_has(delegate_id: str, install: str) -> Availability:
    """Check that stock ExecuTorch is installed and has a delegate; `install` is the command that installs it."""
    try:
        registered = _binding()._get_registered_backend_names()
    except Exception as error:  # whatever a broken installation raises: the caller needs an answer
        return Availability(False, f"executorch cannot be imported ({error}): {install}")
    if delegate_id not in registered:
        return Availability(False, f"the installed executorch was built without {delegate_id}")
    return Availability(True)


def binding_with_all_kernels() -> Any:
    """ExecuTorch's low-level binding, after the wheel's kernels of quantized operators were added to the process.

    Raises ImportError if it is not installed, OSError if its libraries do not fit.
    """
    found = _binding()
    with suppress(Exception):  # a wheel without them: files that need them do not load
        import_module("executorch.kernels.quantized")
    return found


def _binding() -> Any:
    import torch  # noqa: F401  (the binding links against its libraries)
    from executorch.extension.pybindings import _C

    _start_threads(_C)
    return _C


@cache
def _start_threads(binding: Any) -> None:
    """Start the library's threads now: it reports its CPU detection on stderr, which is noise."""
    with quiet("[cpuinfo_utils.cpp:", descriptor=2):
        binding._threadpool_get_thread_count()
