"""Builds the edge graph node by node: rules first, then decompositions, merging equal nodes and folding constants."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeAlias

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.nodes import describe_node, operator_name
from delegatekit_api.schemes import DEQUANTIZE, DEQUANTIZE_TABLES

from ..errors.foreign import UNEXPECTED, as_ours
from .arguments import nodes_in, substitute
from .constants import Constants
from .draft import Draft
from .pairs import is_complex, is_pair
from .size_nodes import SizeNodes
from .sizes import SYMBOLIC, Shape, expression, is_static, no_guards

if TYPE_CHECKING:
    from .program import EdgeMethod


class Rules(Protocol):
    """The rules and checks of operators: `rules.RuleTable`."""

    def rule(self, target: OpOverload) -> Rule | None:
        """The rule for an operator; None if it has none."""

    def check(self, target: OpOverload) -> Check | None:
        """The check for an operator; None if it has none."""

    def complex_rule(self, target: OpOverload) -> Rule | None:
        """The rule for an operator on complex numbers, or one that makes them; None if it has none."""


#: The result of an operator call: a node, a tuple of these (several results), or a literal.
Value: TypeAlias = Any
#: A rewrite rule: returns the result of a call, or NotImplemented to let the operator pass.
Rule: TypeAlias = Callable[["EdgeBuilder", Draft], Value]

#: Rejects a call, by `EdgeBuilder.refuse`, or returns other arguments for it, or nothing.
Check: TypeAlias = Callable[["EdgeBuilder", Draft], "tuple[Any, ...] | None"]

#: Metadata of a node's location in the user's model.
PLACE: Final = ("source_operator", "stack_trace", "nn_module_stack", "custom")

#: Limit of a folded constant's size relative to its inputs (a mask from an arange, say).
FOLD_LIMIT_BYTES = 4 << 20
#: Size from which on a folded constant is computed when it is read: weights of another type may not fit into memory.
_HELD_BYTES: Final = 1 << 20

aten = torch.ops.aten


class EdgeBuilder:
    """The edge graph under construction.

    `rules` rewrite an operator call; their checks run first and may refuse it, kept or not; `expand` decomposes
    one that no rule took; `keep` names the operators that are not decomposed because a backend asked. `origin` is the
    exported node that is being translated.
    """

    def __init__(
        self,
        fake_mode: FakeTensorMode | None,
        rules: Rules,
        expand: Callable[[EdgeBuilder, OpOverload, tuple[Any, ...], dict[str, Any]], Value],
        keep: frozenset[OpOverload],
    ) -> None:
        self.graph = Graph()
        self.constants: Constants[Node] = Constants()
        self.keep = keep
        self.origin: Node | None = None
        self._fake_mode = fake_mode or FakeTensorMode(allow_non_fake_inputs=True)
        self._rules = rules
        self._expand = expand
        self._merged: dict[Any, Node] = {}
        self._literal_constants: dict[Any, Node] = {}
        self._values: dict[Any, Any] = {}
        self._last_placeholder: Node | None = None
        self._handle = 0
        #: Computes sizes that change from call to call from those of the inputs.
        self.sizes = SizeNodes(self._append)
        #: True if there are complex values: nodes of `pairs`.
        self._has_pairs = False
        #: Call of a control flow operator -> its graphs.
        self.regions: dict[Node, tuple[EdgeMethod, ...]] = {}

    def nested(self) -> EdgeBuilder:
        """A builder of the same kind for a graph of control flow."""
        return EdgeBuilder(self._fake_mode, self._rules, self._expand, self.keep)

    # -- calls ---------------------------------------------------------------------------------------------------

    def call(self, target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Value:
        """`translate` for rules, with plain arguments; an operator's own argument `value` cannot be given this way."""
        return self.translate(target, args, kwargs, value)

    def translate(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        """Translate one operator call. `value` is the fake result, or None if not known yet."""
        if target is operator.getitem:
            return args[0][args[1]] if isinstance(args[0], tuple | list) else self.emit(target, args, {}, value)
        if not isinstance(target, OpOverload):
            self.refuse(f"{getattr(target, '__name__', target)} is not an ATen operator")
        if self._has_pairs or is_complex(value):
            result = self._on_pairs(target, args, kwargs, value)
            if result is not NotImplemented:
                return result
        check = self._rules.check(target)
        if check is not None:
            args = check(self, Draft(target, args, kwargs, value)) or args
        if target in self.keep:
            return self.emit(target, args, kwargs, value)
        return self.decompose(target, args, kwargs, value)

    def decompose(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        """Translate a call by rule or decomposition, even if a backend asked to keep the operator."""
        rule = self._rules.rule(target)
        if rule is not None:
            result = rule(self, Draft(target, args, kwargs, value))
            if result is not NotImplemented:
                return result
        expanded = self._expand(self, target, args, kwargs)
        return self.emit(target, args, kwargs, value) if expanded is NotImplemented else expanded

    def has_rule(self, target: OpOverload) -> bool:
        """True if a rule rewrites the operator."""
        return self._rules.rule(target) is not None

    def emit(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None, value: Any = None) -> Node:
        """Append the call as it is (merged with an equal one, folded if all its inputs are constants).

        Symbolic sizes among the arguments become nodes that compute them.
        """
        if self._has_pairs or is_complex(value):
            result = self._on_pairs(target, tuple(args), kwargs or {}, value)
            if result is not NotImplemented:
                return result  # type: ignore[no-any-return]
            if is_complex(value) or any(map(is_pair, nodes_in((args, kwargs)))):
                self.refuse(f"there is no rule for {target} of complex numbers", hint="write it with real numbers")
        args, kwargs = self._with_size_nodes(tuple(args)), self._with_size_nodes(kwargs or {})
        assert isinstance(args, tuple)
        pure = not (isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags)
        # Each reader keeps a dequantize of its own: some of them may run in a delegate that exchanges integers only.
        pure = pure and not (target in self.keep and str(target) in {*DEQUANTIZE, DEQUANTIZE_TABLES})
        key = (target, _hashable(args), _hashable(kwargs)) if pure else None
        if key is not None:
            known = self._merged.get(key)
            if known is not None:
                return known
            node = self.fold(target, args, kwargs)
            if node is not None:
                self._merged[key] = node
                return node
        if value is None:
            value = self._propagate(target, args, kwargs)
        if _has_no_elements(value) and isinstance(target, OpOverload):
            node = self.constant(torch.empty(value.shape, dtype=value.dtype), "_empty")
        else:
            node = self._append(target, args, value, kwargs)
        if key is not None:
            self._merged[key] = node
        return node

    def pair(self, real: Node, imaginary: Node, value: Any) -> Node:
        """The complex value with these parts: see `pairs`."""
        self._has_pairs = True
        key = (aten.complex.default, real, imaginary)
        if key not in self._merged:
            self._merged[key] = self._append(aten.complex.default, (real, imaginary), value)
        return self._merged[key]

    def _on_pairs(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        """The call by its rule for complex numbers, if there are any."""
        rule = self._rules.complex_rule(target)
        if rule is None or not (is_complex(value) or any(map(is_pair, nodes_in((args, kwargs))))):
            return NotImplemented
        return rule(self, Draft(target, args, kwargs, value))

    def append_region_call(self, target: Any, args: tuple[Any, ...], value: Any) -> Node:
        """Append a call of a control flow operator: such calls are neither merged nor folded."""
        return self._append(target, self._with_size_nodes(args), value)

    def _append(self, target: Any, args: tuple[Any, ...], value: Any, kwargs: dict[str, Any] | None = None) -> Node:
        node = self.graph.create_node("call_function", target, args, kwargs or {})
        self._annotate(node, value)
        return node

    def _with_size_nodes(self, argument: Any) -> Any:
        if isinstance(argument, SYMBOLIC):
            try:
                return self.sizes.node(argument)
            except LoweringError as error:
                self.refuse(error.what, hint=error.hint)
        if isinstance(argument, list | tuple):
            return type(argument)(self._with_size_nodes(item) for item in argument)
        if isinstance(argument, dict):
            return {key: self._with_size_nodes(item) for key, item in argument.items()}
        return argument

    def constant(self, tensor: torch.Tensor, name: str = "_constant") -> Node:
        """A placeholder for a known tensor. Small equal constants share one placeholder."""
        tensor = tensor.detach()
        key = None
        if tensor.numel() <= 64:
            key = (
                tensor.dtype,
                tuple(tensor.shape),
                # One element can have any stride and be contiguous.
                tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().tobytes(),
            )
            known = self._literal_constants.get(key)
            if known is not None:
                return known
        node = self.placeholder(name, self.fake_like(tensor))
        self.constants[node] = tensor
        if key is not None:
            self._literal_constants[key] = node
        return node

    def computed(self, like: torch.Tensor, compute: Callable[[], torch.Tensor], name: str) -> Node:
        """A placeholder for a large tensor, computed on each read, with the shape and dtype of a known one."""
        node = self.placeholder(name, self.fake_like(like))
        self.constants.compute(node, compute)
        return node

    def input(self, name: str, value: Any) -> Node:
        """A placeholder that the caller fills: sizes may be taken from it."""
        node = self.placeholder(name, value)
        self.sizes.offer(node)
        return node

    def placeholder(self, name: str, value: Any) -> Node:
        """A placeholder after the existing ones, before all operators."""
        first = next(iter(self.graph.nodes), None) if self._last_placeholder is None else None
        if self._last_placeholder is not None:
            position: Any = self.graph.inserting_after(self._last_placeholder)
        elif first is not None:
            position = self.graph.inserting_before(first)
        else:
            position = self.graph.inserting_after(None)
        with position:
            node = self.graph.placeholder(name)
        node.meta["val"] = value
        self._last_placeholder = node
        return node

    # -- values --------------------------------------------------------------------------------------------------

    def fake_like(self, tensor: torch.Tensor) -> Any:
        """A fake tensor of the same shape and dtype, contiguous; equal requests share one."""
        return self.fake(tuple(tensor.shape), tensor.dtype)

    def fake(self, shape: Shape, dtype: torch.dtype) -> Any:
        """A contiguous fake CPU tensor."""
        key = (tuple(map(expression, shape)), dtype)
        known = self._values.get(key)
        if known is None:
            with self._fake_mode:
                known = self._values[key] = torch.empty(shape, dtype=dtype, device="cpu")
        return known

    def shape(self, value: Any) -> Shape:
        """Sizes of a tensor value: ints, and SymInts for those that change from call to call."""
        return tuple(value.meta["val"].shape)

    def dtype(self, value: Any) -> torch.dtype:
        """Dtype of a tensor value."""
        return value.meta["val"].dtype  # type: ignore[no-any-return]

    def refuse(self, reason: str, hint: str | None = None) -> NoReturn:
        """Raise UnsupportedError about the node that is being translated."""
        raise self.refusal(reason, hint)

    def refusal(self, reason: str, hint: str | None = None) -> UnsupportedError:
        """The error about the node that is being translated."""
        where = describe_node(self.origin) if self.origin is not None else None
        return UnsupportedError(reason, where=where, hint=hint)

    def start(self, node: Node, handle: int) -> None:
        """From now on, new nodes come from the exported node `node`, whose debug handle is `handle`."""
        self.origin, self._handle = node, handle

    def signature(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The inputs that determine the fake result of a call: shapes and dtypes instead of nodes."""
        return (target, _abstract(args), _abstract(kwargs))

    @property
    def fake_mode(self) -> FakeTensorMode:
        """The mode that all fake values belong to."""
        return self._fake_mode

    def _propagate(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return args[0].meta["val"][args[1]]
        key = self.signature(target, args, kwargs)
        known = self._values.get(key)
        if known is None:
            fakes = {node: node.meta["val"] for node in nodes_in((args, kwargs))}
            fake_args, fake_kwargs = substitute((args, kwargs), fakes)
            with self._fake_mode:
                known = self._values[key] = target(*fake_args, **fake_kwargs)
        return known

    def _annotate(self, node: Node, value: Any) -> None:
        origin = self.origin
        node.meta["val"] = value
        node.meta["debug_handle"] = self._handle
        if origin is not None:
            node.meta["source_operator"] = operator_name(origin)
            node.meta |= {key: origin.meta[key] for key in PLACE if origin.meta.get(key)}

    def fold(self, target: Any, args: Any, kwargs: Any, *, at_any_size: bool = False) -> Node | None:
        """The call's result as a constant, if all its inputs are constants and the result is small enough."""
        inputs = nodes_in((args, kwargs))
        if not isinstance(target, OpOverload) or any(node not in self.constants for node in inputs):
            return None
        value = self._propagate(target, args, kwargs)
        if not isinstance(value, torch.Tensor):
            return None
        budget = FOLD_LIMIT_BYTES + 2 * sum(_bytes(node.meta["val"]) for node in inputs)
        if _bytes(value) > budget and not at_any_size:
            return None
        view = _VIEWS.get(target)  # of a weight it stays a view: no second copy of it in memory
        known = self.constants.renamed({node: node for node in inputs})

        def compute() -> Any:
            return _computed(view or target, *substitute((args, kwargs), known))

        if _bytes(value) > _HELD_BYTES and not (view and all(map(self.constants.is_held, inputs))):
            return self.computed(value, compute, "_folded")
        with torch.no_grad():
            return self.constant(compute(), "_folded")


#: Integer types that PyTorch's decompositions compute in (`eye` does from 256 rows on), but not all eager kernels.
_RARE = (torch.uint16, torch.uint32, torch.uint64)


def _computed(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The result of eager."""
    try:
        return function(*args, **kwargs)
    except NotImplementedError:
        dtype = kwargs.get("dtype")
        if dtype not in _RARE:
            raise
        return function(*args, **{**kwargs, "dtype": torch.int64}).to(dtype)


@contextmanager
def translating(builder: EdgeBuilder) -> Iterator[None]:
    """Translate nodes with a builder: unexpected exceptions become errors that name the current node.

    Questions about a changing size are not answered by the example's size: see `no_guards`.
    """
    with as_ours(lambda fault: builder.refusal(f"cannot be translated: {fault}", UNEXPECTED)), no_guards(builder):
        yield


def resolve(names: Collection[str]) -> frozenset[OpOverload]:
    """The operators of these names. A name unknown to this PyTorch cannot occur in a program either."""
    found: set[OpOverload] = set()
    for name in names:
        namespace, _, rest = name.partition(".")
        packet, _, overload = rest.rpartition(".")
        target = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if isinstance(target, OpOverload):
            found.add(target)
    return frozenset(found)


def drop_dead(builder: EdgeBuilder, keep: set[Node]) -> Constants[Node]:
    """Remove nodes without users (those of `keep` stay); returns the remaining constants."""
    for node in reversed(list(builder.graph.nodes)):
        if node.op != "output" and not node.users and node not in keep:
            builder.graph.erase_node(node)
            if node in builder.constants:
                del builder.constants[node]
            builder.regions.pop(node, None)
    return builder.constants


#: Copying views and the equivalent views without a copy (where strides always allow it).
_VIEWS: dict[OpOverload, OpOverload] = {
    aten.permute_copy.default: aten.permute.default,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.select_copy.int: aten.select.int,
    aten.squeeze_copy.dims: aten.squeeze.dims,
    aten.unsqueeze_copy.default: aten.unsqueeze.default,
    aten.view_copy.default: aten.reshape.default,
}


def _has_no_elements(value: Any) -> bool:
    """True if a value never has elements: then there is nothing to compute, and many kernels fail."""
    return isinstance(value, torch.Tensor) and is_static(value.shape) and 0 in value.shape


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _hashable(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        return tuple(_hashable(item) for item in argument)
    if isinstance(argument, dict):
        return tuple((key, _hashable(argument[key])) for key in sorted(argument))
    if isinstance(argument, bool | int | float):
        # 1, 1.0 and True are equal but not the same argument; the repr distinguishes 0.0 from -0.0 and equates NaNs.
        return (type(argument), repr(argument))
    return argument


def _abstract(argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta["val"]
        return _abstract(value)
    if isinstance(argument, torch.Tensor):
        return (*(tuple(map(expression, sizes)) for sizes in (argument.shape, argument.stride())), argument.dtype)
    if isinstance(argument, SYMBOLIC):
        return (type(argument), expression(argument))
    if isinstance(argument, list | tuple):
        return tuple(_abstract(item) for item in argument)
    if isinstance(argument, dict):
        return tuple((key, _abstract(argument[key])) for key in sorted(argument))
    if isinstance(argument, bool | int | float):
        return (type(argument), repr(argument))
    return argument
