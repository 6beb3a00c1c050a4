"""Faults between two things: two sessions, two programs, two sizes, two threads, two lowerings.

Torch is imported where it is used: options are described without it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from delegatekit_api import CompileSpec, option

from .fault import Wrapped, fault

# Calls


@fault("runtime", "sessions/calls")
def _uploads_are_of_the_blob_and_known_to_the_handle(sound: Any) -> Any:
    """Sessions of one blob share the memory for inputs; each skips an upload if its own inputs are the same again."""

    class Runtime(Wrapped):
        uploaded: ClassVar[dict[bytes, Any]] = {}
        last: ClassVar[dict[int, tuple[Any, bytes]]] = {}
        blobs: ClassVar[dict[int, bytes]] = {}

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.last[id(handle)] = (handle, b"")
            self.blobs[id(handle)] = hashlib.sha256(payload.blob).digest()
            return handle

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            blob, mine = self.blobs[id(handle)], _content(inputs)
            if self.last[id(handle)][1] != mine:
                self.uploaded[blob] = [tensor.clone() for tensor in inputs]
            self.last[id(handle)] = (handle, mine)
            known = self.uploaded[blob]
            fits = [tensor.shape for tensor in known] == [tensor.shape for tensor in inputs]
            self._sound.execute(handle, known if fits else inputs, outputs)

    return Runtime(sound)


def _content(tensors: Any) -> bytes:
    return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).digest()


def _skips_uploads(sound: Any, sample: Callable[[bytes], Any]) -> Any:
    """A runtime that treats an input as that of the last call if their samples are equal."""

    class Runtime(Wrapped):
        known: ClassVar[dict[Any, tuple[Any, Any, Any]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            given = []
            for place, tensor in enumerate(inputs):
                seen = tensor.shape, sample(tensor.numpy().tobytes())
                _, before, uploaded = self.known.get((id(handle), place), (None, None, None))
                if seen != before:
                    uploaded = tensor.clone()
                self.known[id(handle), place] = (handle, seen, uploaded)
                given.append(uploaded)
            self._sound.execute(handle, given, outputs)

    return Runtime(sound)


@fault("runtime", "sessions/calls")
def _uploads_are_skipped_if_the_ends_look_alike(sound: Any) -> Any:
    """An input is not copied to the device again if its first and last 64 bytes are those of the call before."""
    return _skips_uploads(sound, lambda data: (data[:64], data[-64:]))


@fault("runtime", "sessions/calls", native=True)
def _uploads_are_skipped_if_every_kilobyte_looks_alike(sound: Any) -> Any:
    """An input is not copied to the device again if the first eight bytes of each kilobyte are as before."""
    return _skips_uploads(sound, lambda data: [data[start : start + 8] for start in range(0, len(data), 1024)])


@fault("runtime", "sessions/calls")
def _weights_on_the_device_are_kept_by_shape(sound: Any) -> Any:
    """While a program is loaded, another of the same shapes gets its weights."""

    class Runtime(Wrapped):
        living: ClassVar[dict[Any, list[Any]]] = {}

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            shapes = tuple(tuple(item.shape) for item in handle.interpreter.constants)
            others = [one for one in self.living.setdefault(shapes, []) if one.interpreter is not None]
            if others and shapes:
                handle.interpreter.constants = others[0].interpreter.constants
            self.living[shapes] = [*others, handle]
            return handle

    return Runtime(sound)


# Sizes


@fault("runtime", "sessions/sizes")
def _recordings_are_for_eight_rows(sound: Any) -> Any:
    """A recorded call is used for all sizes that round up to the same eight; rows beyond the recorded are zero."""

    class Runtime(Wrapped):
        recorded: ClassVar[dict[Any, tuple[Any, int]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for place, output in enumerate(outputs):
                rows = output.shape[0] if output.dim() else 1
                _, known = self.recorded.setdefault((id(handle), place, -(-rows // 8)), (handle, rows))
                if rows > known:
                    output[known:] = 0

    return Runtime(sound)


@fault("runtime", "sessions/sizes")
def _a_size_that_comes_back_is_not_recorded_anew(sound: Any) -> Any:
    """Two recordings are kept; the oldest is overwritten, but its size stays in the table of recordings."""

    class Runtime(Wrapped):
        tables: ClassVar[dict[int, tuple[Any, list[Any]]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            _, seen = self.tables.setdefault(id(handle), (handle, []))
            shapes = [tuple(tensor.shape) for tensor in inputs]
            if shapes not in seen:
                seen.append(shapes)
            elif seen.index(shapes) < len(seen) - 2:
                for output in outputs:
                    output.zero_()

    return Runtime(sound)


# Threads


@fault("runtime", "sessions/threads")
def _all_programs_share_one_scratch_memory(sound: Any) -> Any:
    """Inputs are packed into one memory that all programs share, without a lock."""
    import torch

    scratch = torch.zeros(1 << 16, dtype=torch.uint8)

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            given, start = [], 0
            for tensor in inputs:
                end = start + tensor.nbytes
                if not tensor.dim() or end > len(scratch):
                    given.append(tensor)
                    continue
                packed = scratch[start:end].view(tensor.dtype).view(tensor.shape)
                packed.copy_(tensor)
                given.append(packed)
                start = -(-end // 64) * 64
            self._sound.execute(handle, given, outputs)

    return Runtime(sound)


@fault("runtime", "sessions/threads")
def _the_program_that_runs_is_one_for_all_threads(sound: Any) -> Any:
    """The program that is running is a variable of the process: another thread may set it before it is read."""

    class Runtime(Wrapped):
        current: ClassVar[list[Any]] = [None]

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self.current[0] = handle
            copies = [tensor.clone() for tensor in inputs]
            self._sound.execute(self.current[0], copies, outputs)

    return Runtime(sound)


# State


@fault("runtime", "sessions/state", base="vulkan")
def _what_is_destroyed_is_used_again(sound: Any) -> Any:
    """A destroyed delegate is kept, and reused for the same blob: with its old state."""

    class Runtime(Wrapped):
        free: ClassVar[dict[bytes, list[Any]]] = {}
        blobs: ClassVar[dict[int, tuple[Any, bytes]]] = {}

        def init(self, payload: Any) -> Any:
            blob = _identity(payload)
            handle = self.free[blob].pop() if self.free.get(blob) else self._sound.init(payload)
            self.blobs[id(handle)] = handle, blob
            return handle

        def destroy(self, handle: Any) -> None:
            known = self.blobs.pop(id(handle), None)
            if known is not None:
                self.free.setdefault(known[1], []).append(handle)

    return Runtime(sound)


@fault("runtime", "sessions/state", base="vulkan")
def _sessions_of_one_blob_share_their_state(sound: Any) -> Any:
    """A blob that is loaded already is not loaded again: both sessions use one delegate, with one state."""

    class Runtime(Wrapped):
        handles: ClassVar[dict[bytes, list[Any]]] = {}

        def init(self, payload: Any) -> Any:
            entry = self.handles.setdefault(_identity(payload), [None, 0])
            if entry[0] is None:
                entry[0] = self._sound.init(payload)
            entry[1] += 1
            return entry

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle[0], inputs, outputs)

        def profile(self, handle: Any, inputs: Any, outputs: Any) -> Any:
            return self._sound.profile(handle[0], inputs, outputs)

        def destroy(self, handle: Any) -> None:
            handle[1] -= 1
            if not handle[1]:
                self._sound.destroy(handle[0])
                handle[0] = None

    return Runtime(sound)


def _identity(payload: Any) -> bytes:
    return hashlib.sha256(bytes(payload.blob) + payload.method.encode()).digest()


# Compiling


@fault("preprocess", "sessions/calls")
def _weights_of_methods_are_merged_by_shape(sound: Any) -> Any:
    """A weight of a second method is stored as the weight of the first method that has its shape."""

    class Merged:
        methods: ClassVar[set[str]] = set()
        known: ClassVar[dict[Any, tuple[Any, Any]]] = {}

    def preprocess(partition: Any, options: Any) -> Any:
        from delegatekit_reference.blob import read_blob, write_blob

        if partition.method in Merged.methods:  # of another program
            Merged.methods.clear()
            Merged.known.clear()
        Merged.methods.add(partition.method)
        result = sound(partition=partition, options=options)
        graph = read_blob(memoryview(bytes(result.blob)))
        named = {item.key: item for item in result.named_data}
        items, data = [], {}
        for item in graph.constants:
            first, stored = Merged.known.setdefault((item.dtype, item.shape), (item, named.get(item.key)))
            items.append(first)
            data[first.key] = stored
        kept = tuple(item for item in data.values() if item is not None)
        return dataclasses.replace(
            result, blob=write_blob(dataclasses.replace(graph, constants=tuple(items))), named_data=kept
        )

    return preprocess


def _with_other_keys(sound: Any, part: str, name: Callable[[Any, int], str]) -> Any:
    """A backend whose named data has keys of this form, and which does not look at the contents."""
    from delegatekit_reference.blob import read_blob, write_blob
    from delegatekit_toolkit.content import content_key

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        graph = read_blob(memoryview(bytes(result.blob)))
        keys = {item.key: name(partition, place) for place, item in enumerate(result.named_data)}
        named = tuple(dataclasses.replace(item, key=keys[item.key]) for item in result.named_data)
        constants = tuple(dataclasses.replace(item, key=keys.get(item.key, item.key)) for item in graph.constants)
        blob = write_blob(dataclasses.replace(graph, constants=constants))
        return dataclasses.replace(result, blob=blob, named_data=named)

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            graph = read_blob(payload.blob)
            found = {key: content_key(data) for key, data in payload.named_data.items()}
            constants = tuple(dataclasses.replace(item, key=found.get(item.key, item.key)) for item in graph.constants)
            blob = memoryview(write_blob(dataclasses.replace(graph, constants=constants)))
            named = {found[key]: data for key, data in payload.named_data.items()}
            return self._sound.init(dataclasses.replace(payload, blob=blob, named_data=named))

    return preprocess if part == "preprocess" else Runtime(sound)


@fault("preprocess and runtime", "sessions/data")
def _keys_are_places(sound: Any, part: str) -> Any:
    """Named data is called after its place in the method: that of another model is used for it."""
    return _with_other_keys(sound, part, lambda partition, place: f"{partition.method}-{partition.index}-{place}")


_made: list[int] = []


@fault("preprocess and runtime", "sessions/compiling")
def _keys_count_what_was_lowered(sound: Any, part: str) -> Any:
    """Named data is numbered through in the order of lowering: its keys depend on earlier lowerings."""

    def name(partition: Any, place: int) -> str:
        _made.append(place)
        return f"constant-{len(_made)}"

    return _with_other_keys(sound, part, name)


@fault("preprocess", "sessions/compiling")
def _the_blob_says_how_many_came_before(sound: Any) -> Any:
    """Names inside the blob are made unique by a counter over all programs of the process."""
    from .plugin import with_remark

    def preprocess(partition: Any, options: Any) -> Any:
        _made.append(0)
        return with_remark(sound(partition=partition, options=options), f"program_{len(_made)}")

    return preprocess


@functools.cache
def _with_a_table(sound: Any) -> Any:
    entry = option(None, help="Path of a file with the timings of the device.")
    return dataclasses.make_dataclass("Options", [("timings", "str | None", entry)], bases=(sound,), frozen=True)


@fault("options and preprocess and version", "sessions/compiling")
def _the_version_forgets_a_file(sound: Any, part: str) -> Any:
    """The blob depends on a file that an option names; the key of the cache has its name, but not its content."""
    if part == "options":
        return _with_a_table(sound)
    if part == "version":
        return "1.0"

    def preprocess(partition: Any, options: Any) -> Any:
        base = {item.name: getattr(options, item.name) for item in type(options).describe() if item.name != "timings"}
        result = sound(partition=partition, options=type(options).__bases__[0](**base))
        text = b"" if options.timings is None else Path(options.timings).read_bytes()
        return dataclasses.replace(result, compile_specs=(*result.compile_specs, CompileSpec("timings", text)))

    return preprocess


_by_graph: dict[Any, Any] = {}


@fault("preprocess", "sessions/orders", native=True)
def _what_was_compiled_is_kept_without_its_options(sound: Any) -> Any:
    """Compiled programs are kept by their graph and weights: the options of the first apply to all."""
    from delegatekit_toolkit.content import content_key

    def preprocess(partition: Any, options: Any) -> Any:
        from .histories import _graph_text

        key = _graph_text(partition), *(content_key(item) for item in partition.view.constants.values())
        if key not in _by_graph:
            _by_graph[key] = sound(partition=partition, options=options)
        return _by_graph[key]

    return preprocess
