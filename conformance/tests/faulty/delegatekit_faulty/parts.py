"""Faults of partitioner, compiler and runtime: claims that are not kept, states that are mixed up, checks left out."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from delegatekit_api import Call, Verdict
from delegatekit_api.nodes import operator_name

from .fault import Wrapped, fault

# The partitioner


@fault("partitioner", "contract/*", "operators/aten.cumsum.default/*")
def _refuses_without_a_reason(sound: Any) -> Any:
    """Operators are refused with a blank reason."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            answer = self._sound.check(call)
            return Verdict(False, " ") if call.operator == "aten.cumsum.default" else answer

    return Partitioner(sound)


@fault("partitioner", "contract/*")
def _changes_the_program_while_checking(sound: Any) -> Any:
    """Asking about a node leaves a mark in its metadata."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            node = call.node
            node.meta["seen_by"] = "faulty"
            return self._sound.check(call)  # type: ignore[no-any-return]

    return Partitioner(sound)


@fault("partitioner", "contract/*")
def _answers_change(sound: Any) -> Any:
    """The second answer about a node differs from the first."""

    class Partitioner(Wrapped):
        asked: ClassVar[set[str]] = set()

        def check(self, call: Any) -> Verdict:
            node = call.node
            if node.name in self.asked:
                return Verdict.no("asked before")
            self.asked.add(node.name)
            return self._sound.check(call)  # type: ignore[no-any-return]

    return Partitioner(sound)


@fault("partitioner", "graphs/alone*", "models/*")
def _claims_and_leaves(sound: Any) -> Any:
    """Partitions of the backend's own leave out nodes that it claimed."""

    class Partitioner(Wrapped):
        def propose(self, program: Any) -> Any:
            taken = [node for node in program.graph.nodes if node.op == "call_function"]
            return [taken[:1]] if taken and self._sound.check(Call(taken[0], program)).supported else []

    return Partitioner(sound)


@fault("partitioner", "contract/*")
def _keeps_operators_that_do_not_exist(sound: Any) -> Any:
    """The operators to be kept whole include one that PyTorch does not have."""

    class Partitioner(Wrapped):
        def keep_operators(self) -> Any:
            return {*self._sound.keep_operators(), "aten.conv2.default"}

    return Partitioner(sound)


# The compiler: `sound` is the preprocess hook


@fault("preprocess", "operators/aten.tanh.default/*")
def _compiler_fails_on_a_claim(sound: Any) -> Any:
    """The compiler has no tanh, though the partitioner takes it."""

    def preprocess(partition: Any, options: Any) -> Any:
        for node in partition.exported_program.graph.nodes:
            if node.op == "call_function" and operator_name(node) == "aten.tanh.default":
                raise ValueError("no code for tanh")
        return sound(partition=partition, options=options)

    return preprocess


@fault("preprocess", "contract/*")
def _changes_the_program_while_compiling(sound: Any) -> Any:
    """The compiler leaves its notes in the metadata of the program's nodes."""

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        for node in partition.exported_program.graph.nodes:
            node.meta["register"] = 1
        return result

    return preprocess


@fault("preprocess", "contract/*")
def _weights_are_changed_while_compiling(sound: Any) -> Any:
    """The compiler scales the user's weights in place."""

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        for tensor in (*partition.exported_program.state_dict.values(), *partition.exported_program.constants.values()):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                with torch.no_grad():
                    tensor.detach().mul_(2)
        return result

    return preprocess


@fault("preprocess", "graphs/*", "patterns/*")
def _constants_of_one_shape_are_one(sound: Any) -> Any:
    """Of several constants with the same shape and dtype, only the first is written."""

    def preprocess(partition: Any, options: Any) -> Any:
        from .plugin import share_constants

        return share_constants(sound(partition=partition, options=options))

    return preprocess


# The runtime: `sound` is the runtime object


@fault("runtime", "contract/*", "dynamic/*")
def _stale_output(sound: Any) -> Any:
    """From the second call on, outputs are those of the call before."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            fresh = [output.clone() for output in outputs]
            for output, old in zip(outputs, _last.get(id(handle), fresh), strict=True):
                if output.shape == old.shape:
                    output.copy_(old)
            _last[id(handle)] = fresh

    return Runtime(sound)


_last: dict[int, list[torch.Tensor]] = {}


@fault("runtime", "operators/aten.add.Tensor/*", "contract/*")
def _writes_to_its_input(sound: Any) -> Any:
    """The first input is used as scratch memory."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            if inputs and inputs[0].numel():
                inputs[0].zero_()

    return Runtime(sound)


@fault("runtime", "operators/aten.add.Tensor/*", "contract/*")
def _last_element_is_not_written(sound: Any) -> Any:
    """The last element of an output keeps the former content of memory."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            before = [output.reshape(-1)[-1:].clone() for output in outputs]
            self._sound.execute(handle, inputs, outputs)
            for output, old in zip(outputs, before, strict=True):
                if output.numel() > 1:
                    output.reshape(-1)[-1:] = old

    return Runtime(sound)


@fault("runtime", "graphs/*", "operators/aten.max.dim/*")
def _outputs_in_another_order(sound: Any) -> Any:
    """Two outputs of one shape and dtype are written in the wrong order."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if len(outputs) >= 2 and (outputs[0].shape, outputs[0].dtype) == (outputs[1].shape, outputs[1].dtype):
                outputs = [outputs[1], outputs[0], *outputs[2:]]
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "contract/*")
def _handles_share_their_state(sound: Any) -> Any:
    """All handles run the blob that was loaded last."""

    class Runtime(Wrapped):
        newest: Any = None

        def init(self, payload: Any) -> Any:
            Runtime.newest = self._sound.init(payload)
            return Runtime.newest

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(Runtime.newest, inputs, outputs)

    return Runtime(sound)


@fault("runtime", "contract/*")
def _threads_meet(sound: Any) -> Any:
    """Inputs pass through one buffer that all threads share."""
    import time

    class Runtime(Wrapped):
        shared: Any = None

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            Runtime.shared = [value.clone() for value in inputs]
            time.sleep(0.002)
            self._sound.execute(handle, Runtime.shared, outputs)

    return Runtime(sound)


@fault("runtime", "growth/sessions")
def _handles_are_never_freed(sound: Any) -> Any:
    """Every handle leaks 64 KiB."""

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            _kept.append(bytearray(b"x") * 65536)
            return self._sound.init(payload)

    return Runtime(sound)


_kept: list[bytearray] = []


@fault("runtime", "contract/*")
def _destroying_twice_crashes(sound: Any) -> Any:
    """The second destroy of a handle ends the process."""
    import os
    import signal

    class Runtime(Wrapped):
        gone: ClassVar[list[Any]] = []

        def destroy(self, handle: Any) -> None:
            if any(handle is other for other in self.gone):
                os.kill(os.getpid(), signal.SIGABRT)
            self.gone.append(handle)
            self._sound.destroy(handle)

    return Runtime(sound)


@fault("runtime", "contract/*")
def _sizes_are_not_checked(sound: Any) -> Any:
    """Inputs of any size are cut or filled up without an error."""

    class Runtime(Wrapped):
        specs: ClassVar[dict[int, Any]] = {}

        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload)
            self.specs[id(handle)] = (handle, payload.inputs)
            return handle

        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            known = self.specs.get(id(handle))
            if known is not None and len(known[1]) == len(inputs):
                inputs = [_forced(value, spec) for value, spec in zip(inputs, known[1], strict=True)]
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


def _forced(value: torch.Tensor, spec: Any) -> torch.Tensor:
    if spec.dynamic or tuple(value.shape) == tuple(spec.shape):
        return value
    flat = torch.zeros(int(torch.Size(spec.shape).numel()), dtype=value.dtype)
    count = min(flat.numel(), value.numel())
    flat[:count] = value.reshape(-1)[:count]
    return flat.reshape(spec.shape)


@fault("runtime", "dynamic/*")
def _outputs_keep_the_largest_size(sound: Any) -> Any:
    """Outputs whose size changes are filled up with zeros to the largest one."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            shapes = [tuple(output.shape) for output in outputs]
            self._sound.execute(handle, inputs, outputs)
            for output, shape in zip(outputs, shapes, strict=True):
                if tuple(output.shape) != shape:
                    small = output.clone()
                    output.resize_(shape).zero_()
                    output[tuple(slice(0, size) for size in small.shape)] = small

    return Runtime(sound)


@fault("runtime", "robustness/*")
def _damage_is_not_noticed(sound: Any) -> Any:
    """A blob with a wrong check sum ends the process."""
    import os
    import signal

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            try:
                return self._sound.init(payload)
            except Exception:
                os.kill(os.getpid(), signal.SIGSEGV)

    return Runtime(sound)


@fault("runtime", "robustness/*")
def _errors_are_python_s_own(sound: Any) -> Any:
    """A damaged blob raises a bare KeyError."""

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            try:
                return self._sound.init(payload)
            except Exception:
                raise KeyError("magic") from None

    return Runtime(sound)


@fault("runtime", "operators/aten.add.Tensor/float32", "contract/*", native=True)
def _half_the_precision(sound: Any) -> Any:
    """Results are rounded to float16, but the description says float32."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            self._sound.execute(handle, inputs, outputs)
            for output in outputs:
                if output.is_floating_point():
                    output.copy_(output.half())

    return Runtime(sound)


@fault("partitioner", "operators/aten.tan.default/*", "operators/aten.cumsum.default/*", native=True)
def _claims_everything(sound: Any) -> Any:
    """Every operator is claimed, including those that the compiler does not know."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            return Verdict.yes()

    return Partitioner(sound)


@fault("runtime", "operators/aten.sub.Tensor/float32", native=True)
def _exchanges_inputs(sound: Any) -> Any:
    """Two inputs of one shape reach the runtime in the wrong order where an operator is not symmetric."""

    class Runtime(Wrapped):
        def execute(self, handle: Any, inputs: Any, outputs: Any) -> None:
            if len(inputs) == 2 and inputs[0].shape == inputs[1].shape:
                inputs = [inputs[1], inputs[0]]
            self._sound.execute(handle, inputs, outputs)

    return Runtime(sound)


# Parts that the suite once checked too loosely


@fault("preprocess", "contract/same-bytes-elsewhere")
def _order_of_a_set_of_many_constants(sound: Any) -> Any:
    """From nine constants on, named data is in the order of a set of its keys."""
    from dataclasses import replace

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        if len(result.named_data) < 9:
            return result
        by_key = {item.key: item for item in result.named_data}
        return replace(result, named_data=tuple(by_key[key] for key in set(by_key)))

    return preprocess


@fault("preprocess", "contract/debug-handles-in-order")
def _debug_handles_of_another_operator(sound: Any) -> Any:
    """Each step has the debug handle of another operator of the partition."""
    from dataclasses import replace

    def preprocess(partition: Any, options: Any) -> Any:
        result = sound(partition=partition, options=options)
        handles = list(result.debug_handle_map.values())
        shifted = dict(zip(result.debug_handle_map, [*handles[1:], *handles[:1]], strict=True))
        return replace(result, debug_handle_map=shifted)

    return preprocess


@fault("partitioner", "contract/options-stay-apart")
def _options_of_one_lowering_leak(sound: Any) -> Any:
    """Operators that the user left out of one lowering are left out of all later ones."""

    class Partitioner(Wrapped):
        def check(self, call: Any) -> Verdict:
            answer: Verdict = self._sound.check(call)
            if not answer.supported and "left out" in answer.reason:
                _left_out.add(call.operator)
            return Verdict.no("left out") if call.operator in _left_out else answer

    return Partitioner(sound)


_left_out: set[str] = set()
