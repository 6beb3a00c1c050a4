"""Faults that cost more the longer a process lives: leftovers of calls, sizes, sessions and compilations."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
import threading
from typing import Any, ClassVar

import torch

from .fault import Wrapped, fault

# Calls


@fault("runtime", "growth/calls")
def _each_call_keeps_two_kilobytes(sound: Any) -> Any:
    """Each call keeps 2 KiB for a trace without a reader."""

    class Runtime(Wrapped):
        trace: ClassVar[list[bytearray]] = []

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            self.trace.append(bytearray(b"x") * 2048)

    return Runtime(sound)


@fault("runtime", "growth/calls")
def _each_call_searches_the_earlier_ones(sound: Any) -> Any:
    """Tickets of calls are kept in a list, which is searched in every call."""

    class Runtime(Wrapped):
        tickets: ClassVar[list[tuple[str, int]]] = []

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if ("ticket", -1) in self.tickets:
                raise RuntimeError("no such ticket")
            self.tickets.append(("ticket", len(self.tickets)))
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "growth/calls")
def _results_are_kept_by_the_numbers_of_the_inputs(sound: Any) -> Any:
    """Results are looked up by a digest of the inputs, and never forgotten."""

    class Runtime(Wrapped):
        known: ClassVar[dict[tuple[Any, ...], Any]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            key = (id(handle), *(hash(bytes(tensor.contiguous().numpy().tobytes())) for tensor in inputs))
            self._sound.execute(handle, inputs, outputs)
            self.known.setdefault(key, [tensor.clone() for tensor in outputs])

    return Runtime(sound)


@fault("runtime", "growth/calls")
def _each_call_maps_a_page(sound: Any) -> Any:
    """Each call maps a page for its arguments, and does not unmap it."""

    class Runtime(Wrapped):
        pages: ClassVar[list[mmap.mmap]] = []

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            page = mmap.mmap(-1, mmap.PAGESIZE)
            page[:8] = b"argument"
            self.pages.append(page)
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "growth/threads")
def _each_thread_gets_a_workspace(sound: Any) -> Any:
    """Each thread that calls gets a workspace, which outlives it."""

    class Runtime(Wrapped):
        spaces: ClassVar[dict[threading.Thread, bytearray]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self.spaces.setdefault(threading.current_thread(), bytearray(b"x") * 1024)
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


# Sizes


@fault("runtime", "growth/sizes")
def _a_recording_for_every_size(sound: Any) -> Any:
    """The recording for a size of the inputs is kept for the next call of that size, for each size ever seen."""

    class Runtime(Wrapped):
        recordings: ClassVar[dict[tuple[Any, ...], torch.Tensor]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            key = tuple(tuple(tensor.shape) for tensor in inputs)
            if key not in self.recordings:
                self.recordings[key] = torch.ones(4096)
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


# Sessions


@fault("runtime", "growth/sessions")
def _a_destroyed_session_keeps_its_name(sound: Any) -> Any:
    """The table of sessions keeps an entry for each one that was destroyed."""

    class Runtime(Wrapped):
        names: ClassVar[list[str]] = []

        def destroy(self, handle: Any) -> None:
            self.names.append(f"session {len(self.names)}")
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "growth/sessions")
def _a_session_leaves_a_temporary_file(sound: Any) -> Any:
    """Each session spills its weights into a temporary file, which stays."""

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            with tempfile.NamedTemporaryFile(prefix="weights-", delete=False) as file:
                file.write(bytes(payload.blob[:16]))
            return self._sound.init(payload)

    return Runtime(sound)


@fault("runtime", "growth/sessions-together")
def _a_session_leaves_its_thread(sound: Any) -> Any:
    """The helper thread of a session waits for work after the session was destroyed."""

    class Runtime(Wrapped):
        def destroy(self, handle: Any) -> None:
            threading.Thread(target=threading.Event().wait, args=(300.0,), daemon=True).start()
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "growth/sessions-alive")
def _each_call_looks_through_the_living_sessions(sound: Any) -> Any:
    """A call finds its session by a search of all live ones."""

    class Runtime(Wrapped):
        living: ClassVar[list[Any]] = []

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.living.append(handle)
            return handle

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            found = [other for other in self.living if other is handle]
            self._sound.execute(found[0], inputs, outputs)

        def destroy(self, handle: Any) -> None:
            self.living[:] = [other for other in self.living if other is not handle]
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "growth/loads")
def _each_load_opens_a_descriptor(sound: Any) -> Any:
    """The device is opened once more for each file that is loaded."""

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            os.open("/dev/null", os.O_RDONLY)
            return self._sound.init(payload)

    return Runtime(sound)


@fault("runtime", "growth/refusals")
def _a_refused_blob_is_kept(sound: Any) -> Any:
    """A blob that is refused is kept, with its error, for a report that is never made."""

    class Runtime(Wrapped):
        refused: ClassVar[list[str]] = []

        def init(self, payload: Any) -> Any:
            try:
                return self._sound.init(payload)
            except Exception as error:
                self.refused.append(f"{error} {len(self.refused)}")
                raise

    return Runtime(sound)


# The compiler


@fault("preprocess", "growth/compilations")
def _the_compiler_does_not_free_its_graph(sound: Any) -> Any:
    """Each compilation allocates 512 bytes in native code, and does not free them."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p

    def preprocess(partition: Any, options: Any) -> Any:
        library.malloc(ctypes.c_size_t(512))
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "growth/programs")
def _every_program_stays_in_the_compiler_s_cache(sound: Any) -> Any:
    """Blobs are kept by the digest of their weights, without a limit."""

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        tensors = partition.view.constants.values()
        key = hash(tuple(bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes()) for tensor in tensors))
        _by_weights.setdefault(key, bytes(result.blob))
        return result

    return preprocess


_by_weights: dict[int, bytes] = {}
