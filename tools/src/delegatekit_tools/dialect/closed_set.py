"""The closed set of the edge dialect's operators, and the reason why any other name does not occur.

It is derived from the translation itself: the rules, PyTorch's decompositions, operators kept whole, and the fact that
programs are functional. Exceptions, operators that a rule leaves or writes although there is a rule or decomposition
for them, are listed here.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensorMode

from delegatekit.edge import PROMOTING, RULES, WHOLE, is_decomposable, rewritten_call

aten = torch.ops.aten

#: Rules leave or write some calls of these operators; a change of a rule that makes an operator appear or
#: disappear changes this set (tests compare it with the programs of all examples of the conformance suite).
OCCURRING: Final[frozenset[OpOverload]] = frozenset(PROMOTING) - {aten.floor_divide.default} | {
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
    aten._grouped_mm.default,
    aten._log_softmax.default,
    aten._softmax.default,
    aten._to_copy.default,
    aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
    aten.affine_grid_generator.default,
    aten.arange.default,
    aten.avg_pool3d.default,
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_right_shift.Tensor,
    aten.cat.default,
    aten.clamp.Tensor,
    aten.constant_pad_nd.default,
    aten.convolution.default,
    aten.diagonal_copy.default,
    aten.expand_copy.default,
    aten.full_like.default,
    aten.max.dim,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.min.dim,
    aten.permute_copy.default,
    aten.select_copy.int,
    aten.slice_copy.Tensor,
    aten.squeeze_copy.dims,
    aten.unfold_copy.default,
    aten.unsqueeze_copy.default,
    aten.view_copy.default,
    aten.where.self,
}

#: The module that registers the operators of quantized programs.
_QUANTIZED_AT: Final = "torch.ao.quantization.fx._decomposed"
#: Namespaces whose operators are complete after that import; of others, nothing can be determined.
_NAMESPACES: Final = ("aten", "quantized_decomposed")

#: "core": core ATen, after rewriting. "further": other operators that nothing rewrites. "whole": rewritten,
#: unless a backend asks for them whole. "quantized": operators of quantized programs.
Group = Literal["core", "further", "quantized", "whole"]
GROUPS: Final[Mapping[Group, str]] = {
    "core": "core ATen, after rewriting",
    "further": "further operators that nothing rewrites",
    "quantized": "operators of quantized programs",
    "whole": "only where a backend asks for them whole (`keep_operators`)",
}


@dataclass(frozen=True)
class DialectOperator:
    """An operator that can reach a backend."""

    #: "aten.add.Tensor"
    name: str
    group: Group
    #: PyTorch's: "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
    schema: str


@cache
def dialect_operators() -> Mapping[str, DialectOperator]:
    """All operators that can reach a backend, by name: grouped, and sorted within each group.

    The group "whole" has all functional operators that PyTorch can run on the CPU and that are otherwise rewritten.
    """
    found = [DialectOperator(str(target), group, str(target._schema)) for target, group in _grouped()]
    order = list(GROUPS)
    return {item.name: item for item in sorted(found, key=lambda item: (order.index(item.group), item.name.lower()))}


def absence(name: str, *, whole: bool = False) -> str:
    """The reason why no program has an operator of this name; empty if one can. `whole`: a backend asks to keep it."""
    namespace, _, rest = name.partition(".")
    if namespace not in _NAMESPACES:
        return ""
    _import_quantized()
    packet, _, overload = rest.rpartition(".")
    target = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
    if not isinstance(target, OpOverload):
        return "PyTorch has no operator of this name"
    if target._schema.is_mutable:
        return "it writes into an operand, and programs have values only"
    if any(result.alias_info is not None for result in target._schema.returns):
        return f"it returns a view, and programs have copies{_copying(target)}"
    if whole or _occurs(target):
        return ""
    made = rewritten_to(target)
    family = next((family.name for family in RULES.families if target in family.rules), "")
    how = f"the edge rules ({family})" if family else "PyTorch's decomposition"
    if made is None:
        return f"{how} rewrite{'' if family else 's'} every call of it"
    return f"{how} leave{'' if family else 's'} {', '.join(made) or 'no operator whose arguments are known'} of it"


@cache
def rewritten_to(target: OpOverload) -> tuple[str, ...] | None:
    """The operators that a call is rewritten to unless a backend keeps it, tried with small tensors of its schema. None
    if none of these fit, or the call is not rewritten.
    """
    logger = logging.getLogger(FakeTensorMode.__module__)
    before, logger.disabled = logger.disabled, True  # it logs every sample that does not fit
    try:
        for dtype, rank in itertools.product((torch.float32, torch.int64, torch.bool), (3, 4, 2, 1, 5)):
            with suppress(Exception):
                return _translated(target, dtype, rank)
        return None
    finally:
        logger.disabled = before


def _grouped() -> Iterator[tuple[OpOverload, Group]]:
    _import_quantized()
    # torch.ops lists only operators that were accessed before.
    known = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for namespace in _NAMESPACES:
        packets = getattr(torch.ops, namespace)
        for name in sorted(one.removeprefix(f"{namespace}::") for one in known if one.startswith(f"{namespace}::")):
            packet = getattr(packets, name, None)
            if not isinstance(packet, OpOverloadPacket):
                continue
            for target in (getattr(packet, overload) for overload in packet.overloads()):  # type: ignore[no-untyped-call]
                if _is_functional(target) and _is_computed_here(target):
                    yield target, _group(target)


def _group(target: OpOverload) -> Group:
    if target.namespace != "aten":
        return "quantized"
    if not _occurs(target):
        return "whole"
    return "core" if torch.Tag.core in target.tags else "further"


def _occurs(target: OpOverload) -> bool:
    """True if a program may contain it without a backend that keeps it whole."""
    if target in OCCURRING or target in WHOLE or target.namespace != "aten":
        return True
    return RULES.rule(target) is None and not is_decomposable(target)


def _is_functional(target: OpOverload) -> bool:
    schema = target._schema
    results = schema.returns
    return not schema.is_mutable and bool(results) and all(result.alias_info is None for result in results)


#: Dispatch keys of kernels that run on a CPU, besides those of decompositions.
_KEYS: Final = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def _is_computed_here(target: OpOverload) -> bool:
    """True if it returns a tensor on a CPU: not so for operators of other devices, of lists or of strings."""
    if not any("Tensor" in str(result.type) for result in target._schema.returns):
        return False
    name = target._schema.name
    name += f".{target._schema.overload_name}" if target._schema.overload_name else ""
    if not torch._C._dispatch_has_kernel(name):
        return False
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _KEYS):
        return True
    return is_decomposable(target)


def _copying(target: OpOverload) -> str:
    """The name of the copying variant, in words; empty if there is none."""
    name = target._schema.name.partition("::")[2]
    packet = getattr(aten, f"{name}_copy", None)
    overload = target._overloadname
    return f": aten.{name}_copy.{overload}" if packet is not None and overload in packet.overloads() else ""


def _import_quantized() -> None:
    import_module(_QUANTIZED_AT)


def _translated(target: OpOverload, dtype: torch.dtype, rank: int) -> tuple[str, ...]:
    """The operators of one call, in order. Raises whatever the call raises for operands that do not fit it."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        arguments = [
            _sample(str(argument.type), dtype, rank)
            for argument in itertools.takewhile(_is_needed, target._schema.arguments)
        ]
    calls = rewritten_call(target, arguments)
    if target in calls:
        raise ValueError("this call stays as it is")
    return tuple(dict.fromkeys(str(call) for call in calls if isinstance(call, OpOverload)))


def _is_needed(argument: torch.Argument) -> bool:
    return not (argument.has_default_value() or argument.kwarg_only)


def _sample(kind: str, dtype: torch.dtype, rank: int) -> Any:
    """An example argument for a schema type: tensors have the same `rank` and sizes that most operators accept."""
    shape = (1, 4, 4, 4, 4)[-rank:] if rank != 2 else (4, 4)
    simple: Mapping[str, Any] = {"int": 1, "SymInt": 1, "float": 1.0, "number": 1, "Scalar": 1, "bool": False}
    if kind == "Tensor":
        return torch.ones(shape, dtype=dtype)
    if kind in simple:
        return simple[kind]
    if kind == "List[Tensor]":
        return [torch.ones(shape, dtype=dtype), torch.ones(shape, dtype=dtype)]
    if kind in ("List[int]", "List[SymInt]"):
        return [1]
    raise ValueError(f"no sample of {kind}")
