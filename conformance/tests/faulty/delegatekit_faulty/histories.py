"""Faults that depend on history: caches with too short keys, states that survive, and threads."""

from __future__ import annotations

import atexit
import dataclasses
import os
import random
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any, ClassVar

import torch

from delegatekit_api import ExecutionError, Verdict

from .fault import Wrapped, fault

# The compiler


def _graph_text(partition: Any) -> str:
    return "\n".join(
        f"{node.target}{[str(item) for item in node.args]}{getattr(node.meta.get('val'), 'shape', '')}"
        for node in partition.view.graph.nodes
    )


@fault("preprocess", "contract/other-weights")
def _a_cache_forgets_the_constants(sound: Any) -> Any:
    """Compiled graphs are kept by operators and shapes: the same graph with other weights gets the first one's blob."""

    def preprocess(partition: Any, options: Any) -> Any:
        key = _graph_text(partition)
        if key not in _compiled:
            _compiled[key] = sound(partition=partition, options=options)
        return _compiled[key]

    return preprocess


_compiled: dict[str, Any] = {}


@fault("preprocess", "contract/programs-that-look-alike")
def _a_cache_forgets_the_literals(sound: Any) -> Any:
    """Compiled graphs are kept by operators, shapes and dtypes; numbers in the graph are not part of the key."""

    def preprocess(partition: Any, options: Any) -> Any:
        nodes = [node for node in partition.view.graph.nodes if node.op == "call_function"]
        shapes = tuple(str(getattr(node.meta.get("val"), "shape", "")) for node in partition.view.graph.nodes)
        dtypes = tuple(str(getattr(node.meta.get("val"), "dtype", "")) for node in partition.view.graph.nodes)
        if partition.view.constants:
            return sound(partition=partition, options=options)
        key = (tuple(str(node.target) for node in nodes), shapes, dtypes)
        if key not in _by_operators:
            _by_operators[key] = sound(partition=partition, options=options)
        return _by_operators[key]

    return preprocess


_by_operators: dict[Any, Any] = {}


@fault("preprocess", "growth/compilations")
def _compiled_programs_are_kept(sound: Any) -> Any:
    """The compiler keeps a megabyte of each program that it compiled."""

    def preprocess(partition: Any, options: Any) -> Any:
        _kept.append(bytearray(os.urandom(16)) * 65536)
        return sound(partition=partition, options=options)

    return preprocess


_kept: list[bytearray] = []


@fault("preprocess", "contract/any-thread")
def _the_compiler_needs_the_main_thread(sound: Any) -> Any:
    """The compiler installs a signal handler while it works, which only the main thread may."""

    def preprocess(partition: Any, options: Any) -> Any:
        before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        try:
            return sound(partition=partition, options=options)
        finally:
            signal.signal(signal.SIGUSR1, before)

    return preprocess


@fault("preprocess", "contract/same-bytes-elsewhere")
def _the_folder_is_in_the_blob(sound: Any) -> Any:
    """The blob holds the working folder of its compilation."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), str(Path.cwd()))

    return preprocess


@fault("preprocess", "contract/same-bytes-elsewhere")
def _the_user_is_in_the_blob(sound: Any) -> Any:
    """The blob holds the name of the user and of the home folder."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        who = f"{os.environ.get('HOME')} {os.environ.get('USER')} {os.environ.get('LANG')}"
        return with_remark(sound(partition=partition, options=options), who)

    return preprocess


@fault("preprocess", "contract/same-bytes")
def _random_choices_are_in_the_blob(sound: Any) -> Any:
    """Ties between equal schedules are broken by a random number, whose generator the compiler does not seed."""
    generator = random.SystemRandom()

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), str(generator.randrange(4)))

    return preprocess


@fault("preprocess", "contract/nothing-left-running")
def _leaves_a_child_process(sound: Any) -> Any:
    """Each compilation leaves a process of the compiler's server running."""

    def preprocess(partition: Any, options: Any) -> Any:
        subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/estimates", "contract/compiles-what-it-takes")
def _estimates_are_negative(sound: Any) -> Any:
    """The estimated latency is negative."""
    from delegatekit_api.devices import Estimate

    def preprocess(partition: Any, options: Any) -> Any:
        return dataclasses.replace(sound(partition=partition, options=options), estimate=Estimate("F 1", latency=-1.0))

    return preprocess


@fault("partitioner", "contract/refusal-reasons")
def _reasons_name_an_address(sound: Any) -> Any:
    """The reason of a refusal holds the address of an object, so that no two reports are equal."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            answer: Verdict = self._sound.check(call)
            return answer if answer.supported else Verdict.no(f"{answer.reason} in {object()!r}")

    return Partitioner(sound)


# The runtime


@fault("runtime", "growth/calls")
def _the_seventeenth_call_is_wrong(sound: Any) -> Any:
    """A ring of sixteen buffers is used wrongly from its second round on."""

    class Runtime(Wrapped):
        counts: ClassVar[dict[int, list[Any]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            entry = self.counts.setdefault(id(handle), [handle, 0])
            entry[1] += 1
            self._sound.execute(handle, inputs, outputs)
            if entry[1] > 16:
                for output in outputs:
                    output.zero_()

    return Runtime(sound)


@fault("runtime", "contract/many-handles")
def _destroying_one_frees_what_two_share(sound: Any) -> Any:
    """Handles of equal blobs share their constants, which the first destroy overwrites."""

    class Runtime(Wrapped):
        handles: ClassVar[dict[int, tuple[Any, bytes]]] = {}
        gone: ClassVar[set[bytes]] = set()

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.handles[id(handle)] = (handle, bytes(payload.blob))
            self.gone.discard(bytes(payload.blob))
            return handle

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            if self.handles[id(handle)][1] in self.gone:
                for output in outputs:
                    output.zero_()

        def destroy(self, handle: Any) -> None:
            self.gone.add(self.handles[id(handle)][1])
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "contract/after-a-refusal")
def _a_refused_blob_spoils_the_next(sound: Any) -> Any:
    """After a blob was refused, the loader keeps its error: the next valid one is refused, too."""

    class Runtime(Wrapped):
        error: ClassVar[list[Exception]] = []

        def init(self, payload: Any) -> Any:
            if self.error:
                raise self.error.pop()
            try:
                return self._sound.init(payload)
            except Exception as error:
                self.error.append(error)
                raise

    return Runtime(sound)


@fault("runtime", "contract/wrong-count")
def _a_refused_call_spoils_the_next(sound: Any) -> Any:
    """After a call was refused, the next one of the handle writes zeros."""

    class Runtime(Wrapped):
        spoiled: ClassVar[dict[int, Any]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            try:
                self._sound.execute(handle, inputs, outputs)
            except ExecutionError:
                self.spoiled[id(handle)] = handle
                raise
            if self.spoiled.pop(id(handle), None) is not None:
                for output in outputs:
                    output.zero_()

    return Runtime(sound)


@fault("runtime", "contract/silent")
def _the_end_of_the_process_crashes(sound: Any) -> Any:
    """The runtime frees resources twice at the end of the process, which ends with a signal."""

    class Runtime(Wrapped):
        registered: ClassVar[list[int]] = []

        def init(self, payload: Any) -> Any:
            if not self.registered:
                self.registered.append(1)
                atexit.register(os.kill, os.getpid(), signal.SIGSEGV)
            return self._sound.init(payload)

    return Runtime(sound)


@fault("runtime", "contract/handles-change-threads")
def _handles_belong_to_their_thread(sound: Any) -> Any:
    """A handle can only be used in the thread that made it."""

    class Runtime(Wrapped):
        threads: ClassVar[dict[int, tuple[Any, int]]] = {}

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.threads[id(handle)] = (handle, threading.get_ident())
            return handle

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if self.threads[id(handle)][1] != threading.get_ident():
                raise RuntimeError("no context in this thread")
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "contract/handles-change-threads")
def _destroying_needs_the_thread_of_init(sound: Any) -> Any:
    """Destroying a handle in another thread than the one that made it raises."""

    class Runtime(Wrapped):
        threads: ClassVar[dict[int, tuple[Any, int]]] = {}

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.threads[id(handle)] = (handle, threading.get_ident())
            return handle

        def destroy(self, handle: Any) -> None:
            if self.threads[id(handle)][1] != threading.get_ident():
                raise RuntimeError("no context in this thread")
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "growth/calls")
def _every_call_leaks(sound: Any) -> Any:
    """Each call of a handle keeps 16 KiB, until the handle is destroyed."""

    class Runtime(Wrapped):
        kept: ClassVar[dict[int, list[bytearray]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self.kept.setdefault(id(handle), []).append(bytearray(b"x") * 16384)
            self._sound.execute(handle, inputs, outputs)

        def destroy(self, handle: Any) -> None:
            self.kept.pop(id(handle), None)
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "contract/destroy-twice")
def _two_handles_of_one_payload_are_refused(sound: Any) -> Any:
    """A blob that is loaded while it is loaded already is refused: there is one slot for each."""

    class Runtime(Wrapped):
        loaded: ClassVar[dict[bytes, Any]] = {}

        def init(self, payload: Any) -> Any:
            from delegatekit_api import FormatError

            blob = bytes(payload.blob)
            if blob in self.loaded:
                raise FormatError("is in use", where="faulty blob")
            self.loaded[blob] = handle = self._sound.init(payload)
            return handle

        def destroy(self, handle: Any) -> None:
            for blob in [blob for blob, other in self.loaded.items() if other is handle]:
                del self.loaded[blob]
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "dynamic/*")
def _the_first_call_fixes_the_sizes(sound: Any) -> Any:
    """Workspaces are made in the first call: larger data in a later one is not computed to its end."""

    class Runtime(Wrapped):
        sizes: ClassVar[dict[int, tuple[Any, list[int]]]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            _, first = self.sizes.setdefault(id(handle), (handle, [output.numel() for output in outputs]))
            for output, size in zip(outputs, first, strict=True):
                if output.numel() > size:
                    output.reshape(-1)[size:] = 0

    return Runtime(sound)


@fault("runtime", "contract/results-stay")
def _outputs_share_memory_with_the_runtime(sound: Any) -> Any:
    """Outputs alias the runtime's own memory, which the next call overwrites."""

    class Runtime(Wrapped):
        arena: ClassVar[dict[tuple[Any, ...], torch.Tensor]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for index, output in enumerate(outputs):
                own = self.arena.setdefault((index, output.dtype, tuple(output.shape)), torch.empty_like(output))
                own.copy_(output)
                output.set_(own)

    return Runtime(sound)
