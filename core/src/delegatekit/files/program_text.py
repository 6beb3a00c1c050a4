"""Checks the JSON of an exported program for text that PyTorch would run as Python code while it reads or uses it.

PyTorch evaluates the sizes' expressions and the guards, writes names into source code, looks up the functions that
nodes call, and imports what structures name. PyTorch's own output passes; for anything else the file must be
trusted.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final

from delegatekit_toolkit.json_text import objects, parse

from .pickles import UntrustedError
from .trees import check_tree

#: Names of values: they become parts of source code.
_NAME = re.compile(r"[\w.]*", re.ASCII)
#: Python functions that compute sizes. Names in `operator` that call or mutate something are excluded.
_OPERATORS: Final = frozenset({
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt", "mod", "mul", "ne",
    "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "xor",
})  # fmt: skip
#: Operators that read or write files.
_FILE_OPERATORS: Final = ("torch.ops.aten.from_file", "torch.ops.aten.save", "torch.ops.aten.load")
#: Separators that PyTorch's tracer writes between the parts of vmap and similar.
_PREDISPATCH: Final = "torch._functorch.predispatch."
#: Functions of sympy in sizes, besides those that PyTorch defines.
_SYMPY: Final = frozenset({
    "Abs", "Add", "And", "Eq", "Equality", "ExprCondPair", "Float", "Ge", "GreaterThan", "Gt", "Half", "ITE", "Integer",
    "Le", "LessThan", "Lt", "Max", "Min", "Mod", "Mul", "Ne", "Not", "Or", "Piecewise", "Pow", "Rational",
    "StrictGreaterThan", "StrictLessThan", "Symbol", "Unequality", "Xor", "ceiling", "floor", "log",
})  # fmt: skip
#: Methods and attributes of tensors in guards.
_ASKED: Final = frozenset({"size", "stride", "storage_offset", "ndim", "dtype"})
#: Python builtins in guards.
_BUILT_IN: Final = frozenset({"abs", "bool", "float", "int", "max", "min", "round"})
_NODES: Final = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare, ast.Tuple,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Call, ast.keyword, ast.IfExp,
)  # fmt: skip
#: Limit of powers of constants: larger ones could take unbounded time.
_LARGEST_POWER: Final = 64


def check_program_text(text: bytes, where: str) -> None:
    """Raise UntrustedError for anything that could run code, and FormatError for invalid JSON."""
    targets: set[str] = set()
    # PyTorch writes infinities as Python does.
    for item in objects(parse(text, where, constants=True)):
        for key, value in item.items():
            if key in _CHECKS and value is not None and not _CHECKS[key](value):
                raise UntrustedError(f"an unusual {key} ({_shortened(value)})", where=where)
        if isinstance(item.get("target"), str):
            targets.add(item["target"])
    for target in sorted(targets):
        if not _is_operator(target):
            raise UntrustedError(f"a call of {_shortened(target)}", where=where)


def _is_name(value: Any) -> bool:
    return not isinstance(value, str) or _NAME.fullmatch(value) is not None


def _is_tree(value: Any) -> bool:
    try:
        check_tree(value)
    except Exception:
        return False
    return True


def _is_expression(value: Any) -> bool:
    return isinstance(value, str) and _is_harmless(value, _functions(), guard=False)


def _are_guards(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(text, str) and _is_harmless(text, _functions(), guard=True) for text in value
    )


def _is_empty(value: Any) -> bool:
    return not value


#: The strings that PyTorch evaluates, and the like, by their key.
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "name": _is_name,
    "as_name": _is_name,
    "expr_str": _is_expression,
    "guards_code": _are_guards,
    "in_spec": _is_tree,
    "out_spec": _is_tree,
    "custom_obj_values": _is_empty,
}


def _is_harmless(text: str, functions: Collection[str], *, guard: bool) -> bool:
    """True if a text is one expression of numbers, names and known functions."""
    if not text.isprintable() or "#" in text or "\\" in text:
        return False
    try:
        tree = ast.parse(text, mode="eval")
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_is_harmless_node(node, functions, guard=guard) for node in nodes)


def _is_harmless_node(node: ast.AST, functions: Collection[str], *, guard: bool) -> bool:
    if isinstance(node, ast.Call):
        function = node.func
        known = isinstance(function, ast.Name) and (function.id in functions or (guard and function.id in _sizes()))
        return known or (guard and isinstance(function, ast.Attribute))
    if isinstance(node, ast.Attribute) and "__" not in node.attr:
        known = node.attr in _ASKED or (_is_math(node) and callable(getattr(math, node.attr, None)))
        return guard and (known or node.attr in ("inf", "nan"))
    if isinstance(node, ast.Subscript):
        return guard and isinstance(node.slice, ast.Constant | ast.UnaryOp)
    if isinstance(node, ast.Name):
        return "__" not in node.id
    if isinstance(node, ast.Constant):
        is_name = isinstance(node.value, str) and re.fullmatch(r"[\w. ()-]*", node.value, re.ASCII) is not None
        return is_name or node.value is None or isinstance(node.value, bool | int | float)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = node.right.value if isinstance(node.right, ast.Constant) else None
        return isinstance(power, int | float) and abs(power) <= _LARGEST_POWER
    return isinstance(node, _NODES)


def _is_math(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "math"


@cache
def _functions() -> frozenset[str]:
    from torch.utils._sympy import functions

    own = (name for name, value in vars(functions).items() if isinstance(value, type) and "_sympy" in value.__module__)
    return _SYMPY.union(own)


@cache
def _sizes() -> frozenset[str]:
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    return _BUILT_IN.union(SYMPY_INTERP)


def _is_operator(target: str) -> bool:
    """True if a node calls a PyTorch operator, or a function on sizes, and nothing that accesses files."""
    if target.startswith(_FILE_OPERATORS):
        return False
    module, _, name = target.rpartition(".")
    if module == "_operator":
        return name in _OPERATORS and hasattr(operator, name)
    if module == "math":
        return callable(getattr(math, name, None))
    if target.startswith((_PREDISPATCH, "torch.sym_", "torch._sym_")):
        return _NAME.fullmatch(target) is not None and "__" not in target
    if not target.startswith("torch"):
        return True  # PyTorch treats it as an operator's name, and refuses it or looks it up in its own table
    return _is_overload(target)


def _is_overload(target: str) -> bool:
    import torch
    from torch._ops import HigherOrderOperator, OpOverload

    found: Any = torch
    for name in target.split(".")[1:]:
        if not hasattr(found, name):
            return True  # PyTorch reports that there is no such operator
        found = getattr(found, name)
    return isinstance(found, OpOverload | HigherOrderOperator)


def _shortened(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
