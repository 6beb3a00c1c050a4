"""Runs passes of users and plugins over methods before partitioning, and checks their results."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Final, NoReturn, TypeAlias

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node

from delegatekit_api import DelegateKitError, LoweringError
from delegatekit_api.nodes import describe_node
from delegatekit_toolkit.passes import Change, Pass, pass_name, run_passes
from delegatekit_toolkit.rewriting import EditableProgram, Traced

from .edge import EdgeMethod
from .edge.builder import EdgeBuilder, drop_dead, resolve, translating
from .edge.decompose import Decomposer, replay
from .edge.rewrite import Rewrite
from .edge.rules import RULES
from .edge.sizes import expression, no_guards
from .errors.misuse import WrongArgumentError
from .plugins.blame import fault, shown

_FORM: Final = "a pass returns delegatekit_toolkit.passes.PassResult(program, changes)"
#: The allowed items of the list of passes: see `delegatekit_toolkit.passes`.
ProgramPassLike: TypeAlias = "Pass[EditableProgram] | Callable[[EditableProgram], Any]"


@dataclass(frozen=True)
class OwnedPass:
    """A pass, and its owner: "backend acme (acme-delegate 1.2)", or "" for the user's own."""

    run: ProgramPassLike
    owner: str = ""

    @property
    def place(self) -> str:
        """Its name in errors."""
        return f"pass {pass_name(self.run)}" + (f" of {self.owner}" if self.owner else "")


def given_passes(passes: Sequence[Any] | None) -> tuple[OwnedPass, ...]:
    """The user's passes. Raises WrongArgumentError for invalid ones."""
    if passes is None:
        return ()
    if isinstance(passes, Pass) or callable(passes) or not isinstance(passes, Iterable):
        raise WrongArgumentError(f"passes = {passes!r} is not a list", hint="pass a list: passes=[...]")
    found = tuple(map(OwnedPass, passes))
    for index, item in enumerate(found):
        check_form(item, f"passes[{index}]")
    return found


def check_form(item: OwnedPass, what: str) -> None:
    """Raise WrongArgumentError, in which `what` names the pass, for an invalid one."""
    given: Any = item.run
    owner = f"{what} of {item.owner}" if item.owner else what
    if isinstance(given, type):
        raise WrongArgumentError(f"{owner} is the class {given.__name__}", hint=f"make one: {given.__name__}()")
    if not callable(given):
        raise WrongArgumentError(f"{owner} is {given!r}, which is not a pass", hint=_FORM)
    if isinstance(given, Pass):
        parameters: Any = getattr(type(given), "__dataclass_params__", None)
        if not is_dataclass(given) or not parameters.frozen:
            raise WrongArgumentError(
                f"{owner} is a {type(given).__name__}, which is no frozen dataclass",
                hint="write @dataclass(frozen=True) above the class: a pass is the same in every lowering",
            )


def apply_passes(
    method: EdgeMethod, passes: Iterable[OwnedPass], keep: Collection[str]
) -> tuple[EdgeMethod, tuple[Change, ...]]:
    """The method after all passes, in the dialect, and their changes; graphs of control flow are changed, too.

    `keep` names the operators not to decompose. Raises LoweringError, which names the pass, for one that raises, that
    returns something else, or that leaves a program that is not sound or that returns other shapes or dtypes.
    """
    changes: list[Change] = []
    tracer = _Tracer(method, keep)
    for item in passes:
        check_form(item, "a pass")
        method, found = _apply(method, item, tracer)
        changes.extend(found)
    return method, tuple(changes)


def _apply(method: EdgeMethod, item: OwnedPass, tracer: _Tracer) -> tuple[EdgeMethod, tuple[Change, ...]]:
    changes: list[Change] = []
    regions: dict[Node, tuple[EdgeMethod, ...]] = {}
    for call, inner in method.regions.items():
        applied = [_apply(region, item, tracer) for region in inner]
        regions[call] = tuple(region for region, _ in applied)
        changes.extend(change for _, found in applied for change in found)
    method = replace(method, regions=regions) if changes else method
    updates = [state.updated for state in method.buffers.values()]
    program = EditableProgram(method.view, (*updates, *method.outputs), tracer)
    try:
        found = _run(program, item, tracer)
        if found:
            method = _renewed(method, program, tracer.keep)
    except DelegateKitError as error:
        if isinstance(error, WrongArgumentError) or (error.where or "").startswith(item.place):
            raise
        own = error.where is None or error.where.endswith(f"the pass {pass_name(item.run)}")
        what = error.what if own else f"{error.where}: {error.what}"
        raise LoweringError(what, where=item.place, hint=error.hint) from error
    return method, (*changes, *found)


def _run(program: EditableProgram, item: OwnedPass, tracer: _Tracer) -> tuple[Change, ...]:
    """Run the pass, and check that it reports its changes."""
    try:
        with no_guards(tracer):
            result = run_passes(program, [item.run])
    except (KeyboardInterrupt, DelegateKitError):
        raise
    except BaseException as error:
        raise LoweringError(f"raised {fault(error)}", where=f"{item.place}{_line(error)}") from error
    if result.graph is not program:
        raise LoweringError(f"returned {shown(result.graph)}, not its result", hint=_FORM)
    program.verify()
    node = _first_difference(program)
    if node is None and result.changed:
        raise LoweringError(f"reports a change, but made none: {result.changes[0]}")
    if node is not None and not result.changed:
        raise LoweringError(
            f"changed the program at {describe_node(node)} without reporting it",
            hint=f"{_FORM}: with a Change for each",
        )
    return result.changes


def _first_difference(program: EditableProgram) -> Node | None:
    """The first node that the pass added, changed or removed; None if the program is unchanged."""
    graph = program.graph
    nodes: list[Node] = list(graph.nodes)
    for node in nodes:
        original = graph.originals.get(node)
        if original is None:
            if node.op != "output" or program.results != graph.returned:
                return node
            continue
        wanted: Any = (
            original.target,
            torch.fx.map_arg(original.args, graph.copies.__getitem__),
            torch.fx.map_arg(original.kwargs, graph.copies.__getitem__),
        )
        if (node.target, node.args, node.kwargs) != wanted:
            return node
    left = set(nodes)
    return next((original for copy, original in graph.originals.items() if copy not in left), None)


def _renewed(method: EdgeMethod, program: EditableProgram, keep: Collection[str]) -> EdgeMethod:
    """The result of a pass, in the dialect again. Raises LoweringError if the program's results changed in type."""
    graph, view = program.graph, program.view
    for node in graph.nodes:
        program.complete(node)
    constants = method.constants.renamed({graph.copies[node]: node for node in method.constants})
    constants.update(program.constants.added)
    edited = replace(
        method,
        graph=graph,
        constants=constants,
        buffers=dict(view.buffers),
        inputs=program.inputs,
        outputs=program.results[len(view.buffers) :],
        regions={
            graph.copies[node]: regions for node, regions in method.regions.items() if graph.copies[node] in graph.nodes
        },
    )
    renewed = _Renew(edited, program, keep).rewritten()
    renewed.verify()
    for name, before, after in (
        *(
            (f"the new value of the buffer {old.name}", old.updated, new.updated)
            for old, new in zip(method.buffers.values(), renewed.buffers.values(), strict=True)
        ),
        *((f"output {index}", *pair) for index, pair in enumerate(zip(method.outputs, renewed.outputs, strict=True))),
    ):
        was, now = _form(before), _form(after)
        if was != now:
            raise LoweringError(
                f"{name} was {was}, and is {now} after it", hint="a pass may not change what is returned"
            )
    return renewed


class _Renew(Rewrite):
    """Writes a program that a pass changed in the dialect: unchanged nodes are kept, others translated."""

    def __init__(self, method: EdgeMethod, program: EditableProgram, keep: Collection[str]) -> None:
        super().__init__(method, keep)
        self._originals: Mapping[Node, Node] = program.graph.originals

    def call(self, node: Node, args: Any, kwargs: Any) -> Any:
        original, sign = self._originals.get(node), self.builder.signature
        if original is not None:
            was = sign(original.target, original.args, original.kwargs)
            if was == sign(node.target, args, kwargs):
                return super().call(node, args, kwargs)
        return self.builder.translate(node.target, args, kwargs, None)


class _Tracer:
    """Traces functions, each once for the same sizes, dtypes and numbers."""

    def __init__(self, method: EdgeMethod, keep: Collection[str]) -> None:
        self.keep = keep
        values = [node.meta.get("val") for node in method.graph.nodes if node.op != "output"]
        self.fake_mode: Final = detect_fake_mode(values) or FakeTensorMode(allow_non_fake_inputs=True)
        self._decomposer = Decomposer()
        self._known: dict[Any, Traced] = {}

    def __call__(self, function: Callable[..., Any], values: Sequence[Any], dialect: bool) -> Traced:
        key = (function, tuple(map(_form, values)), dialect)
        if key not in self._known:
            self._known[key] = self._trace(function, values, dialect)
        return self._known[key]

    def refuse(self, reason: str, hint: str | None = None) -> NoReturn:
        """Raise LoweringError about what a pass does."""
        raise LoweringError(reason, hint=hint)

    def _trace(self, function: Callable[..., Any], values: Sequence[Any], dialect: bool) -> Traced:
        name = getattr(function, "__name__", str(function))
        builder = EdgeBuilder(self.fake_mode, RULES, self._decomposer, resolve(self.keep))
        tensors = [
            builder.fake(tuple(item.shape), item.dtype).clone() for item in values if isinstance(item, torch.Tensor)
        ]
        try:
            with translating(builder):
                graph = _called(function, values, tensors, self.fake_mode).graph
        except DelegateKitError as error:
            raise LoweringError(f"the function {name} cannot be traced: {error.what}", hint=error.hint) from error
        _check_traced(name, graph)
        if not dialect:
            inputs = tuple(node for node in graph.nodes if node.op == "placeholder")
            return Traced(graph, inputs, _several(next(iter(reversed(graph.nodes))).args[0]), {})
        with translating(builder):
            placed = tuple(builder.input(f"x{index}", tensor) for index, tensor in enumerate(tensors))
            outputs = _several(replay(builder, graph, placed))
        builder.graph.output(outputs)
        return Traced(builder.graph, placed, outputs, drop_dead(builder, keep=set(placed)))


def _called(
    function: Callable[..., Any], values: Sequence[Any], tensors: Sequence[torch.Tensor], mode: FakeTensorMode
) -> GraphModule:
    """The operators that a function calls, without decompositions."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def call(*given: torch.Tensor) -> Any:
        left = iter(given)
        return function(*(next(left) if isinstance(item, torch.Tensor) else item for item in values))

    with warnings.catch_warnings(), mode, torch.no_grad():
        warnings.simplefilter("ignore")
        return make_fx(call, pre_dispatch=True)(*tensors)


def _check_traced(name: str, graph: Graph) -> None:
    for node in graph.nodes:
        target: Any = node.target
        if node.op == "get_attr":
            raise LoweringError(f"the function {name} makes a tensor of its own", hint="make it an argument")
        if node.op == "call_function" and getattr(getattr(target, "_schema", None), "is_mutable", False):
            raise LoweringError(f"the function {name} writes in place: {target}")


def _several(returned: Any) -> tuple[Any, ...]:
    return tuple(returned) if isinstance(returned, list | tuple) else (returned,)


def _form(value: Any) -> Any:
    """The properties that must not change, as text: dtype and shape of a tensor, or a literal itself."""
    found = value.meta.get("val") if isinstance(value, Node) else value
    if isinstance(found, torch.Tensor):
        sizes = ", ".join(str(expression(size)) for size in found.shape)
        return f"{str(found.dtype).removeprefix('torch.')}[{sizes}]"
    return f"{type(found).__name__} {found!r}"


def _line(error: BaseException) -> str:
    """The place where the pass raised, as far as known."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
