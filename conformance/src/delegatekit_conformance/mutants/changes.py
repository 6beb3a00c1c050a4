"""The possible mutations of one place of a Python source: small edits of its text, found on its syntax tree.

Docstrings, messages, `raise` statements, annotations, `__repr__` and code for type checkers stay as they are.
The operators of general engines (cosmic-ray, mutmut) are a part of these; they have none for swapped axes and
arguments, wrong keys, missing copies, locks and resets, or caches that are keyed by too little.
"""

from __future__ import annotations

import ast
import builtins
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch


@dataclass(frozen=True)
class Change:
    """One edit: the bytes from `start` to `end` of a source become `after`."""

    kind: str
    start: int
    end: int
    after: str
    #: The first and the last line (from 1) that must run for the change to matter.
    lines: tuple[int, int]

    def apply(self, source: bytes) -> bytes:
        """The changed source.

        >>> Change("number", 4, 5, "2", (1, 1)).apply(b"x = 1")
        b'x = 2'
        """
        return source[: self.start] + self.after.encode() + source[self.end :]


class Source:
    """A Python source with its syntax tree."""

    def __init__(self, data: bytes) -> None:
        """`data` is UTF-8. Raises SyntaxError."""
        self.data = data
        self.tree = ast.parse(data)
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The first byte of a node, and the first after it."""
        first, last = node.lineno - 1, node.end_lineno - 1  # type: ignore[attr-defined]
        return self._starts[first] + node.col_offset, self._starts[last] + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        """A node as it is written."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def line(self, number: int) -> str:
        """A line (from 1), without the blanks around it."""
        return self.data[self._starts[number - 1] : self._starts[number]].decode().strip()

    def uses(self, name: str) -> Sequence[ast.Name]:
        """The places where a name is read."""
        return self._uses.get(name, ())

    @cached_property
    def _uses(self) -> Mapping[str, Sequence[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.id, []).append(node)
        return found

    def line_of(self, byte: int) -> int:
        """The number (from 1) of the line that a byte is in."""
        return bisect_right(self._starts, byte)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The ancestors of a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function whose body the node is part of."""
        child = node
        for parent in self.above(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and child in parent.body:
                return parent
            child = parent
        return None

    def names_at(self, node: ast.AST) -> frozenset[str]:
        """The names that the functions around a node and the module bind."""
        bodies = [outer for outer in self.above(node) if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)]
        return self._module_names.union(*map(_bound, bodies))

    @cached_property
    def _module_names(self) -> frozenset[str]:
        return frozenset(name for statement in self.tree.body for name in _bound(statement, inside=False))

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that has the node."""
        return next(found for found in (node, *self.above(node)) if isinstance(found, ast.stmt))

    @cached_property
    def expressions(self) -> Sequence[tuple[int, int, ast.expr]]:
        """All expressions with their bytes, outer ones before those in them."""
        return [(*self.span(node), node) for node in ast.walk(self.tree) if isinstance(node, ast.expr)]

    @cached_property
    def words(self) -> frozenset[str]:
        """All names and attributes in the source."""
        return frozenset(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All names, attributes and names of arguments in the source."""
        given = (node.arg for node in ast.walk(self.tree) if isinstance(node, ast.keyword) and node.arg)
        return self.words | frozenset(given)

    @cached_property
    def members(self) -> Mapping[str, Sequence[str]]:
        """The members of a class or of torch's dtypes that the source names: "DataType" -> ("FP16", "FP32")."""
        found: dict[str, set[str]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and (owner := _owner(node)):
                found.setdefault(owner, set()).add(node.attr)
        return {owner: sorted(names) for owner, names in found.items()}


def _bound(node: ast.AST, *, inside: bool = True) -> frozenset[str]:
    """The names that a statement binds, and with `inside` those that are bound in it."""
    found: set[str] = set()
    for part in ast.walk(node) if inside else (node, *_outside(node)):
        match part:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
    return frozenset(found)


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement that are not in a function or class of it."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield child
            yield from _outside(child)


def changes(data: bytes) -> list[Change]:
    """All changes of a source that give another program, in the order of the source. Raises SyntaxError."""
    source = Source(data)
    found = []
    for node in _places(source.tree):
        for kind, finder in _FINDERS.items():
            for start, end, after in finder(node, source):
                change = Change(kind, start, end, after, (source.line_of(start), source.line_of(max(start, end - 1))))
                if source.data[start:end].decode() != after:
                    found.append(change)
    return sorted(found, key=lambda change: (change.start, change.end, change.kind, change.after))


def compiles(change: Change, data: bytes) -> bool:
    """True if the changed source is a program, and not the same one."""
    try:
        after = ast.parse(change.apply(data))
        compile(after, "<mutant>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return ast.dump(after) != ast.dump(ast.parse(data))


# -- where nothing is changed -----------------------------------------------------------------------------------------

#: Functions for people to read.
_SHOWN = frozenset({"__repr__", "__str__", "__format__"})
#: Calls whose arguments are for people to read, or for type checkers.
_SPOKEN = frozenset({"warn", "warning", "debug", "info", "print", "log", "TypeVar", "NewType", "cast", "getLogger"})
#: Keyword arguments that are texts for people.
_WORDS = frozenset({"hint", "help", "doc", "summary", "description", "message", "metavar", "reason", "where"})
#: Decorators that do not affect the computation.
_MARKS = frozenset({"dataclass", "overload", "abstractmethod", "final", "property", "override", "cache", "lru_cache"})


def _places(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes whose change can change what is computed."""
    yield node
    for child in _within(node):
        if not _is_left_out(child):
            yield from _places(child)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from (mark for mark in node.decorator_list if _name(mark) not in _MARKS)
        yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
        yield from node.body
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None and "TypeAlias" not in ast.dump(node.annotation):
            yield node.value
    elif isinstance(node, ast.Call):
        yield node.func
        yield from node.args
        yield from (keyword for keyword in node.keywords if keyword.arg not in {*_WORDS, "strict"})
    else:
        yield from ast.iter_child_nodes(node)


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.arguments():
            return True
        case ast.FunctionDef(name=name) if name in _SHOWN:
            return True
        case ast.If(test=test) if "TYPE_CHECKING" in ast.dump(test):
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Call() if _name(node) in _SPOKEN:
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(targets=[ast.Attribute(attr=name)]) if name in {*_WORDS, "__doc__"}:
            return True
    return False


def _name(node: ast.AST) -> str:
    """The last part of the name of a call's function, or of a node's name."""
    match node:
        case ast.Call(func=function):
            return _name(function)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


# -- the kinds --------------------------------------------------------------------------------------------------------

#: The bytes that are replaced, and the replacement.
Edit = tuple[int, int, str]
Finder = Callable[[ast.AST, Source], Iterator[Edit]]


def _number(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another number: integers by one, others by a factor."""
    if isinstance(source.parents.get(node), ast.UnaryOp) or _is_default(node, source):
        return
    yield from _other_numbers(node, source)


def _other_numbers(node: ast.AST, source: Source) -> Iterator[Edit]:
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() | float() as value):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            value = -value
        case _:
            return
    others = (value + 1, value - 1) if isinstance(value, int) else (value * 2 + (not value), value * 0.5 - (not value))
    for other in others:
        yield *source.span(node), repr(other) if other >= 0 else f"({other!r})"


def _boolean(node: ast.AST, source: Source) -> Iterator[Edit]:
    """True for False."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool) and not _is_default(node, source):
        yield *source.span(node), repr(not node.value)


def _default(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another default value of an argument."""
    if not _is_default(node, source):
        return
    yield from _other_numbers(node, source)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield *source.span(node), repr(not node.value)


def _is_default(node: ast.AST, source: Source) -> bool:
    return isinstance(source.parents.get(node), ast.arguments)


_BOUNDARIES: Mapping[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}
_OPPOSITES: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
}
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _boundary(node: ast.AST, source: Source) -> Iterator[Edit]:
    """`<` for `<=`: the bound itself belongs to the other side."""
    yield from _compared(node, source, _BOUNDARIES)


def _comparison(node: ast.AST, source: Source) -> Iterator[Edit]:
    """The opposite comparison."""
    yield from _compared(node, source, _OPPOSITES)


def _compared(node: ast.AST, source: Source, others: Mapping[type[ast.cmpop], str]) -> Iterator[Edit]:
    if not isinstance(node, ast.Compare):
        return
    for changed, operator in enumerate(node.ops):
        if type(operator) not in others:
            continue
        text = f"({source.text(node.left)})"
        for number, (sign, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            table = others if number == changed else _COMPARISONS
            text += f" {table[type(sign)]} ({source.text(right)})"
        yield *source.span(node), f"({text})"


_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "//",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.Pow: "*",
}
_SIGNS: Mapping[type[ast.operator], str] = {
    ast.Sub: "-",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
}


def _arithmetic(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another arithmetic operator."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        sign = _ARITHMETIC[type(node.op)]
        yield *source.span(node), f"(({source.text(node.left)}) {sign} ({source.text(node.right)}))"
    if isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC and not _is_text(node.value):
        sign = _ARITHMETIC[type(node.op)]
        yield *source.span(node), f"{source.text(node.target)} {sign}= ({source.text(node.value)})"


def _is_text(node: ast.AST) -> bool:
    """True if an expression certainly is a text, or a list or tuple display: other operators are not for these."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _operands(node: ast.AST, source: Source) -> Iterator[Edit]:
    """The operands of subtraction, division, power ... exchanged."""
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS and not _is_text(node):
        sign = _SIGNS[type(node.op)]
        yield *source.span(node), f"(({source.text(node.right)}) {sign} ({source.text(node.left)}))"


#: Calls that do not depend on the order of arguments, or that fail at once with another one.
_ORDERLESS = frozenset(
    {
        "isclose",
        "min",
        "max",
        "minimum",
        "maximum",
        "isinstance",
        "issubclass",
        "getattr",
        "hasattr",
        "setattr",
        "field",
        "gcd",
        "lcm",
        "mul",
        "multiply",
    }
)


def _arguments(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Two neighboring arguments of a call exchanged."""
    if isinstance(node, ast.Call) and _name(node) not in _ORDERLESS and not _is_sum(node):
        # Conditions of a support table's row follow operator and function; all must hold, in any order.
        yield from _exchanged(node.args[:2] if _is_row(node) else node.args, source, names=_takes_many(node, source))


def _is_sum(call: ast.Call) -> bool:
    """True if a function of this name adds two values; a method adds something to its object."""
    return isinstance(call.func, ast.Name) and call.func.id == "add"


#: Longer tuples list things, in an order that rarely has a meaning; shorter ones are shapes, axes and pairs.
_LISTING = 5


def _elements(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Two neighboring elements of a tuple or list exchanged: axes, indices, names that are assigned to."""
    if isinstance(node, ast.Tuple | ast.List) and len(node.elts) <= _LISTING and not _is_set(node, source):
        yield from _exchanged(node.elts, source, names=_is_list(node, source))


def _is_set(node: ast.AST, source: Source) -> bool:
    """True if a tuple or list is a set: the order has no meaning."""
    parent = source.parents.get(node)
    match parent:
        case ast.Compare(ops=[*_, ast.In() | ast.NotIn()]):
            return True
        case ast.keyword(arg="choices"):  # of an option
            return True
        case ast.Call(func=called):
            return _name(called) in _WITHOUT_ORDER
        case ast.ExceptHandler():
            return True
        case ast.Starred():
            return isinstance(whole := source.parents[parent], ast.Tuple | ast.List) and _is_set(whole, source)
        case ast.comprehension(iter=iterated) if iterated is node:
            whole = source.parents[parent]
            return isinstance(whole, ast.SetComp) or (isinstance(whole, ast.GeneratorExp) and _is_set(whole, source))
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return _in_all_uses(name, source, lambda use: _is_set(use, source))
    return False


def _in_all_uses(name: str, source: Source, condition: Callable[[ast.Name], bool]) -> bool:
    """True if a private name of a module is read, and always so: another module reads no name that begins so."""
    uses = source.uses(name)
    return name.startswith("_") and bool(uses) and all(map(condition, uses))


#: Functions to which the order of their arguments, or of what they read, makes no difference.
_WITHOUT_ORDER = ("isinstance", "issubclass", "set", "frozenset", "any", "all", "sum")


def _takes_many(call: ast.Call, source: Source) -> bool:
    """True if all positional arguments of a call are elements of one parameter: `def f(*names)`."""
    return any(
        isinstance(node, ast.FunctionDef) and node.name == _name(call) and node.args.vararg and not node.args.args
        for node in source.tree.body
    )


def _is_list(node: ast.AST, source: Source) -> bool:
    """True if a table or rule of a module has the elements of a tuple or list, which it does not read by index."""
    match source.parents.get(node):
        case ast.Starred() | ast.keyword():
            return True
        case ast.Call(func=called):
            return not hasattr(builtins, _name(called))
        case ast.comprehension(iter=iterated, target=target):
            return iterated is node and isinstance(target, ast.Name)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            # A function may read it in any way.
            return _in_all_uses(name, source, lambda use: source.function(use) is None and _is_list(use, source))
        case ast.BinOp(op=ast.Add()) | ast.Tuple() as outer:
            return isinstance(node, ast.Name) and _is_list(outer, source)
    return False


def _name_operators(*nodes: ast.expr) -> bool:
    """True if all are names of PyTorch's operators: tables and rules find theirs by name, in any order.

    >>> _name_operators(*ast.parse("'relu', 'aten.add.Tensor'", mode="eval").body.elts)
    True
    """
    values = (node.value if isinstance(node, ast.Constant) else None for node in nodes)
    return all(
        isinstance(value, str) and hasattr(torch.ops.aten, value.removeprefix("aten.").partition(".")[0])
        for value in values
    )


def _is_row(node: ast.AST) -> bool:
    """True if it is a row of a support table, which finds its rows by their names."""
    return isinstance(node, ast.Call) and _name(node) == "row"


def _exchanged(nodes: Sequence[ast.expr], source: Source, *, names: bool) -> Iterator[Edit]:
    """Neighbors exchanged; with `names` those that name operators stay, since their order has no meaning."""
    for left, right in pairwise(nodes):
        if names and _name_operators(left, right):
            continue
        if isinstance(left, ast.Starred) or isinstance(right, ast.Starred) or (_is_row(left) and _is_row(right)):
            continue
        (start, middle), (after, end) = source.span(left), source.span(right)
        between = source.data[middle:after].decode()
        yield start, end, f"{source.text(right)}{between}{source.text(left)}"


def _bounds(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A bound of a slice or a range is off by one, or is missing."""
    match node:
        case ast.Slice(lower=lower, upper=upper):
            for bound in filter(None, (lower, upper)):
                yield *source.span(bound), f"({source.text(bound)}) + 1"
                yield *source.span(bound), ""
        case ast.Call(func=ast.Name(id="range"), args=[*_, _] as bounds):
            stop = bounds[0] if len(bounds) == 1 else bounds[1]
            yield *source.span(stop), f"({source.text(stop)}) - 1"
            yield *source.span(stop), f"({source.text(stop)}) + 1"
        case ast.Subscript(slice=ast.Name() | ast.Attribute() as index) if not isinstance(node.ctx, ast.Del):
            yield *source.span(index), f"({source.text(index)}) - 1"


def _statement(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A statement that changes something is left out."""
    if _is_effect(node) and not _resets(node, source):
        yield *source.span(node), "pass"
    if isinstance(node, ast.Continue | ast.Break):
        yield *source.span(node), "pass"


def _reset(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A state is not restored, or a resource is not freed."""
    if _is_effect(node) and _resets(node, source):
        yield *source.span(node), "pass"


def _is_effect(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete():
            return not (isinstance(node, ast.Expr) and _name(node.value) in _SPOKEN)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            return True
    return False


_RESETTING = re.compile(r"reset|clear|close|destroy|release|free|stop|restore|__exit__|__del__|pop")


def _resets(node: ast.AST, source: Source) -> bool:
    function = source.function(node)
    if function is not None and _RESETTING.search(function.name):
        return True
    match node:
        case ast.Delete():
            return True
        case ast.Expr(value=call):
            return bool(_RESETTING.search(_name(call)))
        case ast.Assign(value=ast.Constant(value=None | False | 0)):
            return function is not None and function.name != "__init__"
    return False


def _guard(node: ast.AST, source: Source) -> Iterator[Edit]:
    """An early exit is not taken."""
    match node:
        case ast.If(test=test, body=[ast.Return() | ast.Raise() | ast.Continue() | ast.Break()], orelse=[]):
            yield *source.span(test), "False"


def _condition(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A condition becomes its opposite."""
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            tests: Sequence[ast.expr] = (test,)
        case ast.comprehension(ifs=tests):
            pass
        case _:
            return
    for test in tests:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            continue  # the same as the opposite comparison
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            yield *source.span(test), f"({source.text(test.operand)})"
        else:
            yield *source.span(test), f"(not ({source.text(test)}))"


def _logic(node: ast.AST, source: Source) -> Iterator[Edit]:
    """`and` for `or`, or one of the conditions is forgotten."""
    if not isinstance(node, ast.BoolOp):
        return
    texts = [f"({source.text(value)})" for value in node.values]
    mine, other = (" and ", " or ") if isinstance(node.op, ast.And) else (" or ", " and ")
    yield *source.span(node), f"({other.join(texts)})"
    for number in range(len(texts)):
        rest = texts[:number] + texts[number + 1 :]
        yield *source.span(node), f"({mine.join(rest)})"


def _key(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another key of a mapping, argument by name, or text in a comparison."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_key(node, source)):
        return
    scope: ast.AST = source.function(node) or source.tree
    others = sorted(
        {
            other.value
            for other in ast.walk(scope)
            if isinstance(other, ast.Constant)
            and isinstance(other.value, str)
            and other.value != node.value
            and _is_key(other, source)
        }
    )
    for other in others or (f"{node.value}_",):
        yield *source.span(node), repr(other)


def _is_key(node: ast.Constant, source: Source) -> bool:
    match source.parents.get(node):
        case ast.Subscript(slice=key):
            return key is node
        case ast.Dict(keys=keys):
            return any(key is node for key in keys)
        case ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[key, *_]):
            return key is node
    return False


_COPIES = frozenset({"clone", "copy", "contiguous", "detach", "deepcopy"})
_COPYING = frozenset({"bytes", "bytearray", "list", "dict", "set", "deepcopy", "copy"})


def _copy(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A copy is replaced by its original."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=[]) if name in _COPIES:
            yield *source.span(node), f"({source.text(value)})"
        case ast.Call(func=function, args=[value], keywords=[]) if _name(function) in _COPYING:
            if not isinstance(value, ast.Starred | ast.GeneratorExp | ast.Constant):
                yield *source.span(node), f"({source.text(value)})"


_LOCK = re.compile(r"lock|mutex|semaphore|guard", re.IGNORECASE)
_NOTHING = '__import__("contextlib").nullcontext()'


def _lock(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A lock is not taken."""
    yield from _without_context(node, source, locks=True)


def _surroundings(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A context is not entered."""
    yield from _without_context(node, source, locks=False)


def _without_context(node: ast.AST, source: Source, *, locks: bool) -> Iterator[Edit]:
    if isinstance(node, ast.With):
        for item in node.items:
            if item.optional_vars is None and bool(_LOCK.search(source.text(item.context_expr))) is locks:
                yield *source.span(item.context_expr), _NOTHING


_CACHE = re.compile(r"key|cache|known|seen|memo|kept|made|fingerprint|digest|identity", re.IGNORECASE)


def _cache_key(node: ast.AST, source: Source) -> Iterator[Edit]:
    """One part of a key is forgotten, so that different things have one key."""
    if not (isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1):
        return
    function = source.function(node)
    match source.parents.get(node):
        case ast.Assign(targets=[target]):
            holder = source.text(target)
        case ast.Subscript(value=value):
            holder = source.text(value)
        case ast.Call(func=called) if _name(called) != "fromkeys":
            holder = source.text(called)
        case ast.Return():
            holder = function.name if function else ""
        case _:
            return
    if _CACHE.search(holder):
        texts = [source.text(element) for element in node.elts]
        for number in range(len(texts)):
            rest = texts[:number] + texts[number + 1 :]
            yield *source.span(node), f"({', '.join(rest)},)"


_EXTREMES: Mapping[str, str] = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
    "minimum": "maximum",
    "maximum": "minimum",
    "amin": "amax",
    "amax": "amin",
    "argmin": "argmax",
    "argmax": "argmin",
}


#: Those of Python itself, which are known everywhere.
_BUILTIN = frozenset({"min", "max", "any", "all"})


def _extreme(node: ast.AST, source: Source) -> Iterator[Edit]:
    """The smallest for the largest, any for all, down for up."""
    match node:
        case ast.Call(func=ast.Name(id=name) as called) if name in _EXTREMES:
            if _EXTREMES[name] in source.names_at(node) | _BUILTIN:
                yield *source.span(called), _EXTREMES[name]
        case ast.Call(func=ast.Attribute(value=owner, attr=name) as called) if name in _EXTREMES:
            yield *source.span(called), f"{source.text(owner)}.{_EXTREMES[name]}"
        case ast.Call(func=ast.Name(id="reversed"), args=[value]):
            yield *source.span(node), f"({source.text(value)})"


#: Words that name two sides of one thing.
_PAIRS: Mapping[str, str] = {
    left: right
    for pair in (
        ("left", "right"),
        ("top", "bottom"),
        ("height", "width"),
        ("first", "last"),
        ("first", "second"),
        ("largest", "smallest"),
        ("low", "high"),
        ("lower", "upper"),
        ("minimum", "maximum"),
        ("min", "max"),
        ("inputs", "outputs"),
        ("input", "output"),
        ("rows", "columns"),
        ("start", "end"),
        ("start", "stop"),
        ("before", "after"),
        ("scale", "zero_point"),
        ("keys", "values"),
    )
    for left, right in (pair, pair[::-1])
}


def _pair(node: ast.AST, source: Source) -> Iterator[Edit]:
    """The other side: height for width, input for output, where the source knows both.

    A name that is not known where it stands would fail at once.
    """
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            prefix, known = "", source.names_at(node)
        case ast.Attribute(value=owner, attr=name, ctx=ast.Load()):
            prefix, known = f"{source.text(owner)}.", source.words
        case _:
            return
    for word, other in _PAIRS.items():
        parts = name.split("_")
        if word in parts:
            changed = "_".join(other if part == word else part for part in parts)
            if changed in known:
                yield *source.span(node), prefix + changed


def _member(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another member of an enumeration, another dtype."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
        return
    owner = _owner(node)
    if owner and not isinstance(source.parents.get(node), ast.Attribute):
        for other in source.members[owner]:
            if other != node.attr:
                yield *source.span(node), f"{source.text(node.value)}.{other}"


_DTYPE = re.compile(r"(bfloat|float|u?int|complex)\d+$|bool$")


def _owner(node: ast.Attribute) -> str:
    """The class whose member an attribute is, as far as its spelling shows; "torch" for dtypes. Else empty."""
    if not isinstance(node.value, ast.Name):
        return ""
    if node.value.id in ("torch", "np", "numpy"):
        return node.value.id if _DTYPE.match(node.attr) else ""
    is_class = node.value.id.lstrip("_")[:1].isupper() and not node.value.id.isupper()
    return node.value.id if is_class and node.attr.isupper() else ""


def _keyword(node: ast.AST, source: Source) -> Iterator[Edit]:
    """An argument that is given by its name is forgotten."""
    if not isinstance(node, ast.Call):
        return
    given = [*node.args, *node.keywords]
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in _WORDS or keyword.arg == "strict":
            continue
        rest = [source.text(argument) for argument in given if argument is not keyword]
        yield *source.span(node), f"{source.text(node.func)}({', '.join(rest)})"


def _sign(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A minus or a `~` is left out."""
    match node:
        case ast.UnaryOp(op=ast.USub() | ast.Invert(), operand=operand) if not isinstance(operand, ast.Constant):
            yield *source.span(node), f"({source.text(operand)})"


#: The kinds of changes by name.
_FINDERS: Mapping[str, Finder] = {
    "number": _number,
    "boolean": _boolean,
    "default": _default,
    "boundary": _boundary,
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "operands": _operands,
    "arguments": _arguments,
    "elements": _elements,
    "bounds": _bounds,
    "statement": _statement,
    "reset": _reset,
    "guard": _guard,
    "condition": _condition,
    "logic": _logic,
    "key": _key,
    "copy": _copy,
    "lock": _lock,
    "surroundings": _surroundings,
    "cache key": _cache_key,
    "extreme": _extreme,
    "pair": _pair,
    "member": _member,
    "keyword": _keyword,
    "sign": _sign,
}
#: All kinds of changes of Python sources.
KINDS = tuple(_FINDERS)
