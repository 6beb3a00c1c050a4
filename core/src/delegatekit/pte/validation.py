"""Validates an opened .pte: faults that the runtime refuses, and those that make it crash or compute nonsense.

`validate` checks the file once and raises one FormatError at the first fault: what is wrong, where, what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delegatekit_api import FormatError

from . import schema
from .jumps import find_endless
from .kernels import library_of, runtime_operators
from .manifest import read_manifest
from .reader import PteFile
from .signatures import Kinds, signature
from .writes import DAMAGED, WriteCheck

#: Limit of planned buffers and tensors, and of a method in total: more is considered corruption.
_LARGEST_BUFFER = 64 << 30

_NUMBERS = (schema.Int, schema.Bool, schema.Double)
_LISTS = (schema.IntList, schema.DoubleList, schema.BoolList, schema.TensorList, schema.OptionalTensorList)


def validate(file: PteFile) -> None:
    """Check the whole file; raises FormatError. Reads tables only, no tensor data."""
    program = file.program
    if program.version != 0:
        raise FormatError(f"the program has version {program.version}, this reader knows 0", hint="upgrade delegatekit")
    _require(program.execution_plan, "no methods", "program")
    if program.constant_buffer and len(program.constant_buffer) > 1:
        raise FormatError("constants are stored inline, which the runtime does not read any more", where="program")
    for index, segment in enumerate(program.segments or ()):
        if segment.size and not file.segments[index].nbytes:
            raise FormatError("is empty, but should not be", where=f"segment {index}")
    manifest = read_manifest(file)
    names: set[str] = set()
    for index, plan in enumerate(program.execution_plan or ()):
        if not plan.name:
            raise FormatError("has no name", where=f"method {index}", hint=DAMAGED)
        if plan.name in names:
            raise FormatError("appears twice", where=f"method {plan.name}", hint=DAMAGED)
        names.add(plan.name)
        _Plan(file, plan, manifest.outputs_of(plan.name)).check()


def validate_data(file: PteFile) -> None:
    """Check that the given data files have the data outside the file; raises FormatError with the key."""
    for plan in file.program.execution_plan or ():
        for value in plan.values or ():
            if schema.is_external(value.val):
                try:
                    file.external_tensor(value.val)  # type: ignore[arg-type]
                except FormatError as error:
                    raise FormatError(error.what, where=f"method {plan.name}, {error.where}", hint=error.hint) from None


def _require(value: Any, what: str, where: str) -> None:
    if not value:
        raise FormatError(what, where=where, hint=DAMAGED)


class _Plan:
    """The checks of one method."""

    def __init__(self, file: PteFile, plan: schema.ExecutionPlan, delegate_outputs: Mapping[int, int]) -> None:
        self.file = file
        self.delegate_outputs = delegate_outputs
        self.plan = plan
        self.where = f"method {plan.name}"
        self.values: Sequence[schema.EValue] = plan.values or []
        self.buffers: Sequence[int] = plan.non_const_buffer_sizes or []
        #: Bytes of buffers and of tensors that are neither planned nor in a file: the upper bound of a call.
        self.reserved = 0

    def check(self) -> None:
        for name in ("values", "inputs", "outputs", "operators", "delegates", "chains", "non_const_buffer_sizes"):
            if getattr(self.plan, name) is None:
                self.fail(f"{name} are missing", self.where)
        self.check_buffers()
        for index, value in enumerate(self.values):
            self.check_value(value.val, f"{self.where}, value {index}")
        for index in (*(self.plan.inputs or ()), *(self.plan.outputs or ())):
            if isinstance(self.value(index, f"{self.where}, inputs and outputs"), _LISTS):
                self.fail(f"value {index} is a list and cannot be an input or output", self.where)
        for number, delegate in enumerate(self.plan.delegates or ()):
            self.check_delegate(delegate, f"{self.where}, delegate {number}")
        for number, operator in enumerate(self.plan.operators or ()):
            self.check_operator(operator, f"{self.where}, operator {number}")
        _require(self.plan.chains, "has no instructions", self.where)
        for number, chain in enumerate(self.plan.chains or ()):
            if chain.instructions is None:
                self.fail("has no instructions", f"{self.where}, chain {number}")
            for step, instruction in enumerate(chain.instructions or ()):
                self.check_instruction(instruction.instr_args, chain, f"{self.where}, instruction {step}")
        endless = find_endless(self.plan)
        if endless is not None:
            self.fail("leads into a loop that cannot end", f"{self.where}, instruction {endless}")
        WriteCheck(self.plan, self.where, self.delegate_outputs).run()

    def reserve(self, size: int, where: str) -> None:
        self.reserved += size
        if self.reserved > _LARGEST_BUFFER:
            self.fail(f"the method needs {self.reserved} bytes of memory or more", where)

    def fail(self, what: str, where: str) -> None:
        raise FormatError(what, where=where, hint=DAMAGED)

    def check_buffers(self) -> None:
        _require(self.buffers, "planned buffer sizes are missing", self.where)
        for index, size in enumerate(self.buffers):
            if not 0 <= size <= _LARGEST_BUFFER:
                self.fail(f"planned buffer {index} has {size} bytes", self.where)
            self.reserve(size, self.where)

    # -- values --------------------------------------------------------------------------------------------------

    def value(self, index: int, where: str) -> Any:
        if not 0 <= index < len(self.values):
            self.fail(f"refers to value {index} of {len(self.values)}", where)
        return self.values[index].val

    def check_value(self, value: Any, where: str) -> None:
        if value is None:
            self.fail("is of no kind", where)
        if isinstance(value, schema.Tensor):
            self.check_tensor(value, where)
        elif isinstance(value, _LISTS):
            if value.items is None:
                self.fail("is a list without items", where)
            self.check_list(value, where)
        elif isinstance(value, schema.String) and value.string_val is None:
            self.fail("is a text without characters", where)

    def check_list(self, value: Any, where: str) -> None:
        kinds: dict[type, tuple[type, ...]] = {
            schema.IntList: (schema.Int,),
            schema.TensorList: (schema.Tensor,),
            schema.OptionalTensorList: (schema.Tensor, schema.Null),
        }
        wanted = kinds.get(type(value))
        if wanted is None:
            return
        for item in value.items:
            if item == -1 and isinstance(value, schema.OptionalTensorList):
                continue
            if not isinstance(self.value(item, where), wanted):
                self.fail(f"its item, value {item}, is of the wrong kind", where)

    def check_tensor(self, tensor: schema.Tensor, where: str) -> None:
        fault = schema.layout_fault(tensor.scalar_type, tensor.sizes, tensor.dim_order)
        if fault is not None:
            self.fail(fault, where)
        if tensor.storage_offset:
            self.fail(f"has storage offset {tensor.storage_offset}; the runtime supports only 0", where)
        if tensor.shape_dynamism not in (schema.TensorShapeDynamism.STATIC, schema.TensorShapeDynamism.DYNAMIC_BOUND):
            self.fail(f"shape dynamism {tensor.shape_dynamism} has no upper bound or is unknown", where)
        if tensor.layout:
            self.fail(f"layout {tensor.layout} is not strided", where)
        size = tensor.nbytes
        if size > _LARGEST_BUFFER:
            self.fail(f"has {size} bytes: {tensor.sizes}", where)
        extra, external = tensor.extra_tensor_info, schema.is_external(tensor)
        if extra is not None and extra.location not in tuple(schema.TensorDataLocation):
            self.fail(f"its data is at the unknown location {extra.location}", where)
        if extra is not None and external and not extra.fully_qualified_name:
            self.fail("lives outside the file, but has no name", where)
        if tensor.allocation_info is not None:
            self.check_allocation(tensor.allocation_info, tensor, size, where)
            if tensor.data_buffer_idx and not external:
                self.located(self.file.mutable_state, tensor, size, where)
        elif tensor.data_buffer_idx and not external:
            self.located(self.file.constant, tensor, size, where)
        elif not external:
            self.reserve(size, where)

    def located(self, find: Callable[[int, int], Any], tensor: schema.Tensor, size: int, where: str) -> None:
        try:
            find(tensor.data_buffer_idx, size)
        except FormatError as error:
            raise FormatError(f"its data: {error}", where=where, hint=DAMAGED) from None

    def check_allocation(
        self, allocation: schema.AllocationDetails, tensor: schema.Tensor, size: int, where: str
    ) -> None:
        if not 0 < allocation.memory_id < len(self.buffers):
            self.fail(f"is planned in buffer {allocation.memory_id} of {len(self.buffers) - 1} (counted from 1)", where)
        offset, available = allocation.offset, self.buffers[allocation.memory_id]
        if offset + size > available:
            self.fail(f"is planned at bytes {offset} to {offset + size} of a buffer of {available}", where)
        if offset % schema.ELEMENT_SIZE[schema.ScalarType(tensor.scalar_type)]:
            self.fail(f"is planned at offset {offset}, which is not aligned for its elements", where)

    # -- delegates and operators ---------------------------------------------------------------------------------

    def check_delegate(self, delegate: schema.BackendDelegate, where: str) -> None:
        if not delegate.id:
            self.fail("has no backend id", where)
        for spec in delegate.compile_specs or ():
            if spec.key is None or spec.value is None:
                self.fail("has a compile spec without key or value (the runtime would crash)", where)
        try:
            self.file.delegate_blob(delegate)
        except FormatError as error:
            raise FormatError(error.what, where=where, hint=DAMAGED) from None

    def check_operator(self, operator: schema.Operator, where: str) -> None:
        if not operator.name or operator.overload is None:
            self.fail("has no name", where)
        name = operator.full_name
        if library_of(name) is None and name not in runtime_operators():
            raise FormatError(
                f"the runtime has no operator {name}", where=where, hint="lower the model again with this version"
            )

    # -- instructions --------------------------------------------------------------------------------------------

    def check_instruction(self, call: Any, chain: schema.Chain, where: str) -> None:
        if call is None:
            self.fail("is of no kind", where)
        if isinstance(call, schema.KernelCall):
            operators = self.plan.operators or []
            if not 0 <= call.op_index < len(operators):
                self.fail(f"calls operator {call.op_index} of {len(operators)}", where)
            self.check_arguments(operators[call.op_index].full_name, self.arguments(call, where), where)
        elif isinstance(call, schema.DelegateCall):
            delegates = self.plan.delegates or []
            if not 0 <= call.delegate_index < len(delegates):
                self.fail(f"calls delegate {call.delegate_index} of {len(delegates)}", where)
            arguments = self.arguments(call, where)
            if not arguments:
                self.fail("calls a delegate without arguments", where)
            # Stock ExecuTorch also passes the sizes that a delegate's program names, between its inputs.
            if not all(isinstance(argument, (schema.Tensor, *_NUMBERS)) for argument in arguments):
                self.fail("passes something that is neither tensor nor number to a delegate", where)
            if not isinstance(arguments[-1], schema.Tensor):
                self.fail("calls a delegate whose last argument, an output, is not a tensor", where)
        elif isinstance(call, schema.MoveCall):
            if any(isinstance(self.value(index, where), _LISTS) for index in (call.move_from, call.move_to)):
                self.fail("moves a list", where)
        elif isinstance(call, schema.JumpFalseCall):
            count = len(chain.instructions or ())
            if not 0 <= call.destination_instruction <= count:
                self.fail(f"jumps to instruction {call.destination_instruction} of {count}", where)
            condition = self.value(call.cond_value_index, where)
            if not isinstance(condition, schema.Bool) and not _is_truth(condition):
                self.fail("jumps on a value that is neither a bool nor a tensor of bools", where)
        elif isinstance(call, schema.FreeCall):
            self.value(call.value_index, where)

    def arguments(self, call: schema.KernelCall | schema.DelegateCall, where: str) -> list[Any]:
        if call.args is None:
            self.fail("has no arguments", where)
        return [self.value(index, where) for index in call.args or ()]

    def check_arguments(self, name: str, arguments: Sequence[Any], where: str) -> None:
        known = signature(name)
        if known is None:
            return
        kinds = known.kinds
        if len(arguments) != len(kinds):
            self.fail(f"passes {len(arguments)} arguments to {name}, which takes {len(kinds)}", where)
        for position, (argument, wanted) in enumerate(zip(arguments, kinds, strict=True)):
            if not isinstance(argument, wanted):
                given = type(argument).__name__
                self.fail(f"passes {given} as argument {position} of {name}, which takes {_names(wanted)}", where)


def _is_truth(value: Any) -> bool:
    return isinstance(value, schema.Tensor) and value.scalar_type == schema.ScalarType.BOOL


def _names(kinds: Kinds) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
