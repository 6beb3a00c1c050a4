"""Faults at the edges of the interface: options, methods, alignment, slots, and differences between processes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar

import torch

from delegatekit_api import FormatError, Verdict

from .fault import Wrapped, fault


@fault("documentation", "contract/documentation")
def _documentation_cannot_be_written(sound: Any) -> Any:
    """The hook for the page of documentation raises."""

    def documentation() -> Any:
        raise KeyError("table")

    return documentation


@fault("targets", "contract/targets")
def _a_target_has_unknown_options(sound: Any) -> Any:
    """A listed target is chosen by an option that the backend does not have."""
    from delegatekit_api.devices import TargetInfo

    return lambda: (TargetInfo("chip-x", "a chip", {"chipset": "x"}),)


@fault("preprocess", "contract/methods")
def _methods_share_their_blobs(sound: Any) -> Any:
    """Blobs are kept by the number of the partition and its signature: every method gets those of the first."""

    def preprocess(partition: Any, options: Any) -> Any:
        shapes = tuple(str(node.meta["val"].shape) for node in partition.view.inputs)
        key = (partition.index, shapes, len(partition.view.constants))
        method, result = _made.get(key, ("", None))
        if method not in ("", partition.method):
            return result
        _made[key] = (partition.method, sound(partition=partition, options=options))
        return _made[key][1]

    return preprocess


_made: dict[Any, tuple[str, Any]] = {}


@fault("preprocess", "contract/options-compile")
def _an_option_breaks_the_compiler(sound: Any) -> Any:
    """With another value than its default, an option makes the compiler fail."""

    def preprocess(partition: Any, options: Any) -> Any:
        if getattr(options, "decompose", False):
            raise NotImplementedError("decompose")
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/options-compile")
def _an_option_changes_the_numbers(sound: Any) -> Any:
    """With another value than its default, an option makes the last step read its first operand only."""

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        if not getattr(options, "decompose", False):
            return result
        from delegatekit_reference.blob import read_blob, write_blob
        from delegatekit_reference.ir.graph import Ref

        graph = read_blob(memoryview(bytes(result.blob)))
        last = graph.steps[-1]
        refs = [arg for arg in last.args if isinstance(arg, Ref)]
        steps = (*graph.steps[:-1], replace(last, args=tuple(refs[0] if arg in refs else arg for arg in last.args)))
        return replace(result, blob=write_blob(replace(graph, steps=steps)))

    return preprocess


@fault("preprocess and runtime", "contract/named-data-anywhere")
def _needs_more_alignment_than_it_says(sound: Any, part: str) -> Any:
    """Named data is said to need no alignment, but the runtime refuses data that is not on a multiple of 64 bytes."""
    if part == "preprocess":

        def preprocess(partition: Any, options: Any) -> Any:
            result = sound(partition=partition, options=options)
            return replace(result, named_data=tuple(replace(item, alignment=1) for item in result.named_data))

        return preprocess

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            for key, data in payload.named_data.items():
                if data.nbytes and torch.frombuffer(data, dtype=torch.uint8).data_ptr() % 64:
                    raise FormatError(f"{key} is not aligned", where="faulty blob")
            return self._sound.init(payload)

    return Runtime(sound)


@fault("preprocess", "contract/same-bytes-elsewhere")
def _the_number_of_threads_is_in_the_blob(sound: Any) -> Any:
    """Work is divided among as many threads as the compiling process has."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), str(torch.get_num_threads()))

    return preprocess


@fault("preprocess", "contract/same-bytes-elsewhere")
def _the_date_is_in_the_blob(sound: Any) -> Any:
    """The blob holds the date of its compilation."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        return with_remark(sound(partition=partition, options=options), time.strftime("%Y-%m-%d"))

    return preprocess


@fault("preprocess", "contract/same-bytes-elsewhere")
def _debug_handles_in_the_order_of_a_set(sound: Any) -> Any:
    """Steps are named by texts, and their debug handles are written in the order of a set of these."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import with_remark

        result = sound(partition=partition, options=options)
        names = {f"step{key}": value for key, value in result.debug_handle_map.items()}
        return with_remark(result, " ".join(map(str, set(names)))) if len(names) > 8 else result

    return preprocess


@fault("partitioner", "contract/same-bytes-elsewhere")
def _reasons_in_the_order_of_a_set(sound: Any) -> Any:
    """The reason of a refusal lists the supported dtypes in the order of a set: it differs between processes."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            answer: Verdict = self._sound.check(call)
            kinds = ", ".join({"float32", "float16", "int8", "int32", "uint8", "bool"})
            return answer if answer.supported else Verdict.no(f"{answer.reason} (supported are {kinds})")

    return Partitioner(sound)


@fault("runtime", "contract/second-destroy-later")
def _a_slot_is_freed_twice(sound: Any) -> Any:
    """Handles are slots that are used again: a second destroy frees the data of the slot's next handle."""

    class Runtime(Wrapped):
        slots: ClassVar[list[Any]] = []

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            slot = self.slots.index(None) if None in self.slots else len(self.slots)
            self.slots[slot : slot + 1] = [handle]
            return _Slot(slot)

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            from delegatekit_api import ExecutionError

            found = self.slots[handle.number]
            if found is None:
                raise ExecutionError("was destroyed", where="faulty")
            self._sound.execute(found, inputs, outputs)

        def destroy(self, handle: Any) -> None:
            if self.slots[handle.number] is not None:
                self._sound.destroy(self.slots[handle.number])
                self.slots[handle.number] = None

    return Runtime(sound)


class _Slot:
    def __init__(self, number: int) -> None:
        self.number = number


@fault("runtime", "contract/nan-passes")
def _nan_stays(sound: Any) -> Any:
    """Accumulators are cleared by multiplying with zero: after a NaN, all later results of the handle are NaN."""

    class Runtime(Wrapped):
        poisoned: ClassVar[dict[int, Any]] = {}

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if any(value.is_floating_point() and bool(value.isnan().any()) for value in inputs):
                self.poisoned[id(handle)] = handle
            self._sound.execute(handle, inputs, outputs)
            for output in outputs if self.poisoned.get(id(handle)) is handle else ():
                if output.is_floating_point():
                    output.fill_(float("nan"))

    return Runtime(sound)


@fault("partitioner", "contract/check-repeatable")
def _the_kept_operators_grow(sound: Any) -> Any:
    """The set of operators to be kept is the partitioner's own, and each question adds the operator to it."""

    class Partitioner(Wrapped):
        kept: ClassVar[set[str]] = set()

        def check(self, call: Any) -> Verdict:
            answer: Verdict = self._sound.check(call)
            if answer.supported:
                self.kept.add(call.operator)
            return answer

        def keep_operators(self) -> Any:
            self.kept.update(self._sound.keep_operators())
            return self.kept

    return Partitioner(sound)
