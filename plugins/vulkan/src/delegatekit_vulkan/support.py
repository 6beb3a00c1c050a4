"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_api import Call, Operand, ProgramView, Verdict
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.fewer_axes import FewerAxes
from delegatekit_toolkit.narrowing import narrow_constants, wide_number
from delegatekit_toolkit.passes import run_passes
from delegatekit_toolkit.sizes import Dynamic, largest, smallest
from delegatekit_toolkit.support import SupportTable, TablePartitioner
from delegatekit_toolkit.symbols import is_bounded, shape_of

from .ir.stock import LINEAR, SIZE_FUNCTIONS, STOCK, StockOperator
from .ir.types import BUFFER_RANK, TEXTURE_RANK, Storage, device_type
from .ir.weights import integer_bytes
from .operators import (
    convolution,
    elementwise,
    functions,
    indexing,
    linear,
    normalization,
    quantization,
    reduction,
    shape,
    spatial,
    writing,
)
from .operators.program import Lower, build_layer
from .passes import arithmetic
from .passes.integers import float_reason
from .targets import TARGETS

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import VulkanOptions

#: The device's types; the host narrows int64.
_TAKEN: Final = ("float32", "float16", "int32", "int64", "bool")
#: Numbers that are computed in the program.
_NUMBERS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


# -- every operator ----------------------------------------------------------------------------------------------------


def device_types(call: Call) -> str | None:
    """Tensors are float32, float16, int32, int64 (which the host narrows to 32 bits) or bool."""
    if TABLE.fact(call, "any_type"):
        return None
    for item in call.tensors:
        if item.dtype_name == "float64":
            return f"{item.name} is float64: GPUs compute in 32 bits, and the digits would be lost"
        if item.dtype_name not in _TAKEN:
            return f"{item.name} is {item.dtype_name}: float32, float16, int32, int64 and bool are taken"
    return None


def bounded_sizes(call: Call) -> str | None:
    """Sizes that change from call to call have an upper bound, grow together, and are 1 or more."""
    for item in call.tensors:
        if not item.is_dynamic:
            continue
        if not all(map(is_bounded, item.shape)):
            return f"{item.name} has a size without an upper bound, {item.shape}"
        changing = [size for size in shape_of(item) if isinstance(size, Dynamic)]
        if any(largest(size) != max(size.calls) for size in changing):
            return f"{item.name} has a size that shrinks where another one grows, {item.shape}"
        if any(smallest(size) < 1 for size in changing):
            return f"{item.name} has no elements in some calls, {item.shape}"
    return None


def known_numbers(call: Call) -> str | None:
    """Numbers are computed from sizes only if the runtime supports that, with functions that it has."""
    taken = TABLE.fact(call, "takes_sizes") or ()
    for name, value in call.arguments.items() if call.sizes and taken is not True else ():
        items = value if isinstance(value, tuple) else (value,)
        if name not in taken and any(isinstance(item, _NUMBERS) for item in items):
            return f"{name} is a number that is computed from sizes"
    for node in _size_nodes(call):
        name = str(node.target) if "." in str(node.target) else node.target.__name__
        if name.removeprefix("aten.") not in SIZE_FUNCTIONS:
            return f"a number is computed by {name}, which the runtime on the device lacks"
    return None


def _size_nodes(call: Call) -> Iterator[Any]:
    """The nodes that compute the call's numbers, and the numbers that these are computed from."""
    waiting, seen = list(call.sizes), set()
    while waiting:
        node = waiting.pop()
        if node in seen or node.op != "call_function":
            continue
        seen.add(node)
        yield node
        if str(node.target) != "aten.sym_size.int":
            waiting += node.all_input_nodes


def rank_and_elements(call: Call) -> str | None:
    """At most 8 axes (4 if the runtime keeps operands in textures), and at least one element."""
    most = TEXTURE_RANK if _takes_textures(call) else BUFFER_RANK
    for item in call.tensors:
        if item.rank > most:
            return f"{item.name} has {item.rank} axes: the runtime takes {most}"
        if any(size == 0 for size in item.shape if isinstance(size, int)):
            return f"{item.name} has no elements, {item.shape}"
    return None


def _takes_textures(call: Call) -> bool:
    return any(not facts.many_axes for facts in _stock(call))


def resizable(call: Call) -> str | None:
    """Sizes do not change if the runtime on the device cannot compute the operator with other ones."""
    fixed = _fixed(call)
    if fixed is None or not call.is_dynamic:
        return None
    return f"the runtime on the device computes {fixed} for the same sizes in every call"


def _fixed(call: Call) -> str | None:
    """The first of the runtime's operators for a call that does not support other sizes in later calls."""
    return next((name for name, facts in _stock_named(call) if not facts.resizes), None)


def _stock_named(call: Call) -> Iterator[tuple[str, StockOperator]]:
    """The runtime's operators that a call is lowered to, if they have restrictions.

    A row names them with the fact `runs`, or with a function of the call; without it, the operator of the same name
    counts.
    """
    names = TABLE.fact(call, "runs")
    if callable(names):
        names = names(call)
    for name in (call.operator,) if names is None else names:
        if name in STOCK:
            yield name, STOCK[name]


def _stock(call: Call) -> list[StockOperator]:
    return [facts for _, facts in _stock_named(call)]


# -- the table ---------------------------------------------------------------------------------------------------------

TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *functions.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *writing.ROWS,
        *linear.ROWS,
        *normalization.ROWS,
        *reduction.ROWS,
        *convolution.ROWS,
        *spatial.ROWS,
        *quantization.ROWS,
    ],
    common=(device_types, bounded_sizes, rank_and_elements, known_numbers, resizable, narrow_constants),
    foreign_sizes=True,
)


#: Operators whose operands the runtime keeps in textures are written on as many axes as these have.
PASSES: Final = (FewerAxes(TEXTURE_RANK, lambda call: bounded_sizes(call) is None and _takes_textures(call)),)


class VulkanPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: VulkanOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="vulkan")
        self._options = options
        target = TARGETS[options.target]
        self._texture = target.texture
        self._buffer = options.buffer_limit or target.buffer

    def check(self, call: Call) -> Verdict:
        """The table's verdict, and a check that the tensors fit the target."""
        verdict = super().check(call)
        if verdict.supported and (reason := self._too_large(call) or self._too_fixed(call)):
            return Verdict.no(reason)
        return verdict

    def float_reason(self, layer: Sequence[Call]) -> str | None:
        """The reason why the layer does not compute on integers: the runtime has no operator for it."""
        graph = build_layer(layer, TABLE, self._options)
        return float_reason(run_passes(graph, arithmetic(self._options, any_scale=True)).graph)

    def state_reason(self, program: ProgramView, buffer: Node) -> str | None:
        """The reason why a state cannot be kept: the device lacks its type, or its first value changes there.

        With `fp16` its new value is computed as float16 in any case: it would not be more precise outside.
        """
        state = program.buffers[buffer]
        initial, dtype = state.initial, dtype_name(state.initial.dtype)
        if dtype not in _TAKEN:
            return f"{state.name} is {dtype}: {', '.join(_TAKEN)} are kept on the device"
        if initial.dim() > BUFFER_RANK:
            return f"{state.name} has {initial.dim()} axes: {BUFFER_RANK} are the most"
        if not initial.numel():
            return f"{state.name} has no elements"
        if wide_number(initial) is not None:
            return f"{state.name} begins with a number that 32 bits cannot hold"
        return self._too_many_bytes(state.name, initial.numel(), initial.dtype)

    def _too_many_bytes(self, name: str, elements: int, dtype: torch.dtype) -> str | None:
        return self._too_many(name, elements * device_type(dtype, half=self._options.fp16).bytes)

    def _too_many(self, name: str, size: int) -> str | None:
        if size > self._buffer:
            return f"{name} has {size} bytes: {self._buffer} are the most on {self._options.target}"
        return None

    def _kept_bytes(self, item: Operand) -> int | None:
        """Bytes of a weight that linear layers read as integers, or of these; None for other tensors."""
        weight = next((call.result for call in item.users), item) if item.is_constant else item
        own = weight.quantization if weight.is_known else None
        readers = weight.users
        if own is None or not readers or any(call.operator != LINEAR or call["weight"] != weight for call in readers):
            return None
        fixed = not any(call["input"].is_dynamic for call in readers)
        return integer_bytes(own, tuple(weight.shape), fixed=fixed, half=self._options.fp16)

    def _too_large(self, call: Call) -> str | None:
        for item in call.tensors:
            reason = self._too_many_bytes(item.name, math.prod(map(largest, shape_of(item))), item.dtype)
            if reason is not None and (kept := self._kept_bytes(item)) is not None:
                reason = self._too_many(item.name, kept)
            if reason is not None:
                return reason
        for facts in _stock(call):
            if any(form.storage is Storage.BUFFER for form in facts.forms):
                continue
            for item in call.tensors:
                sizes = tuple(map(largest, shape_of(item)))
                if not item.is_known and not any(form.fits(sizes, self._texture) for form in facts.forms):
                    return f"{item.name} {item.shape} exceeds the textures of {self._options.target}: {self._texture}"
        return None

    def _too_fixed(self, call: Call) -> str | None:
        if not self._options.require_dynamic_shapes:
            return None
        fixed = _fixed(call)
        if fixed is None:
            return None
        return f"{fixed} is computed for the same sizes in every call (require_dynamic_shapes is set)"
