"""The pages of the API reference: one for each public module, from docstrings, signatures and `#:` comments.

Read from the sources without importing them, and quoted as they are written, so that the pages are the same on every
Python. A module is public if it has `__all__`; a package whose face exports nothing has all its modules public.
"""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from packages import Package, packages

from delegatekit.pipeline.arguments import parsed

NOTE: Final = "Written by `python docs/generate.py` from the sources. Do not edit."
#: Signatures that would be longer are broken after each argument.
_WIDTH: Final = 100

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


@dataclass(frozen=True)
class Module:
    """A module's source and syntax."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def doc(self) -> str:
        """Its docstring. Raises ValueError if it has none."""
        return _doc(self.tree, self.name)

    @property
    def exports(self) -> tuple[str, ...] | None:
        """The names that its `__all__` lists."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and _target(node) == "__all__":
                return tuple(ast.literal_eval(node.value))
        return None

    def defined(self) -> Iterator[tuple[str, ast.stmt]]:
        """The public names that it defines itself."""
        for node in self.tree.body:
            for name in _names(node):
                if not name.startswith("_"):
                    yield name, node

    def source(self, node: ast.AST) -> str:
        """The source text of a node, on one line."""
        return re.sub(r"\s+", " ", ast.get_source_segment(self.text, node) or "")

    def comment(self, node: ast.stmt) -> str:
        """The lines that begin with `#:` before a statement."""
        lines = self.text.splitlines()
        found: list[str] = []
        for number in range(node.lineno - 2, -1, -1):
            line = lines[number].strip()
            if not line.startswith("#:"):
                break
            found.insert(0, line[2:].strip())
        return " ".join(found)


def reference(folder: Path) -> dict[Path, str]:
    """The pages, and the one that lists them, by their paths in `folder`."""
    pages: dict[Path, str] = {}
    index = ["# API reference", "", NOTE, ""]
    for package in _documented():
        index += [f"## {package.distribution}", "", f"{package.project['description']}", ""]
        for module in _public(package):
            pages[folder / f"{module.name}.md"] = page(module)
            index.append(f"* [{module.name}]({module.name}.md): {_first(module.doc)}")
        index.append("")
    pages[folder / "README.md"] = "\n".join(index)
    return pages


def page(module: Module) -> str:
    """The page of one module. Raises ValueError for an exported name that is not found, or has no docstring."""
    lines = [f"# {module.name}", "", NOTE, "", *_text(module.doc), ""]
    names = [name for name in module.exports or [name for name, _ in module.defined()] if not name.startswith("__")]
    found = {name: _resolve(module, name) for name in sorted(names, key=str.lower)}
    kinds: Mapping[str, tuple[type, ...]] = {
        "Modules": (ast.Module,),
        "Functions": (ast.FunctionDef, ast.AsyncFunctionDef),
        "Classes": (ast.ClassDef,),
        "Values": (ast.Assign, ast.AnnAssign),
    }
    for title, types in kinds.items():
        chosen = {name: home for name, home in found.items() if isinstance(home[1], types)}
        if chosen:
            lines += [f"## {title}", ""]
        for name, (home, node) in chosen.items():
            lines += _entry(name, home, node)
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, home: Module, node: ast.AST) -> list[str]:
    """The lines of a page about one name."""
    if isinstance(node, ast.Module):
        return [f"* `{name}`: {_first(home.doc)}", ""]
    if isinstance(node, ast.ClassDef):
        return _class(name, home, node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        told = [_told(field, text) for field, (_, text, _) in _taken(home, node).items()]
        lines = [*_code(_signature(home, node)), *_text(_doc(node, name)), ""]
        return [f"### {name}", "", *lines, *told, *[""] * bool(told)]
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    comment = home.comment(node)
    return [f"### {name}", "", *_code(_value(home, node) or name), *([comment, ""] if comment else [])]


def _class(name: str, home: Module, node: ast.ClassDef) -> list[str]:
    bases = ", ".join(home.source(base) for base in (*node.bases, *node.keywords))
    marks = [f"@{home.source(mark)}" for mark in node.decorator_list]
    lines = [f"### {name}", "", *_code("\n".join([*marks, f"class {name}({bases})" if bases else f"class {name}"]))]
    doc = _doc(node, name)
    told = parsed(doc)
    lines += [*_text(doc.partition("\n\nArgs:\n")[0] if told else doc), ""]
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign | ast.Assign) and _is_public(item)]
    for field in fields:
        lines.append(_told(_value(home, field), home.comment(field) or told.get(_name(field) or "", "")))
    lines += [""] * bool(fields)
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and _is_public(item):
            lines += [f"#### {name}.{item.name}", "", *_code(_signature(home, item)), *_text(_doc(item, name)), ""]
    return lines


def _signature(home: Module, node: Function) -> str:
    """The head of a function as it is written, on one line or, if that is long, with one line for each argument."""
    marks = [f"@{home.source(mark)}" for mark in node.decorator_list if home.source(mark) != "_hookspec"]
    marks = [mark for mark in marks if not mark.startswith(("@_", "@takes("))]
    taken = _taken(home, node).values()
    arguments = _arguments(home, node.args)
    if taken:
        given = [[text for text, _, keyword in taken if keyword == wanted] for wanted in (False, True)]
        arguments = [*given[0], "*", *given[1]]
    head = f"{'async ' * isinstance(node, ast.AsyncFunctionDef)}def {node.name}("
    tail = ")" if node.returns is None else f") -> {home.source(node.returns)}"
    line = head + ", ".join(arguments) + tail
    if len(line) > _WIDTH:
        line = "\n".join([head, *(f"    {argument}," for argument in arguments), tail])
    return "\n".join([*marks, line])


def _taken(home: Module, node: Function) -> dict[str, tuple[str, str, bool]]:
    """The fields that a function marked `@takes(CLASS)` has as parameters: see `_fields`."""
    marks = [re.fullmatch(r"takes\((\w+)\)", home.source(mark)) for mark in node.decorator_list]
    return next((_fields(home, mark[1]) for mark in marks if mark), {})


def _fields(home: Module, name: str) -> dict[str, tuple[str, str, bool]]:
    """Field of a dataclass and its bases -> as it is written, its paragraph, and whether it is keyword-only."""
    home, node = _resolve(home, name)
    assert isinstance(node, ast.ClassDef)
    found: dict[str, tuple[str, str, bool]] = {}
    for base in node.bases:
        found |= _fields(home, home.source(base))
    told, keyword = parsed(_doc(node, name)), "kw_only=True" in home.source(node.decorator_list[0])
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            field = _name(item) or ""
            keyword = keyword or field == "_"
            if field != "_":
                found[field] = (home.source(item), told[field], keyword)
    return found


def _told(name: str, text: str) -> str:
    return f"* `{name}`" + (f": {text}" if text else "")


def _arguments(home: Module, given: ast.arguments) -> list[str]:
    found: list[str] = []
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    for index, (argument, default) in enumerate(zip(positional, defaults, strict=True)):
        if index and index == len(given.posonlyargs):
            found.append("/")
        found.append(_argument(home, argument, default))
    if given.vararg is not None:
        found.append("*" + _argument(home, given.vararg, None))
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(home, *pair) for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        found.append("**" + _argument(home, given.kwarg, None))
    return found


def _argument(home: Module, argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg if argument.annotation is None else f"{argument.arg}: {home.source(argument.annotation)}"
    if default is None:
        return text
    return f"{text}{'=' if argument.annotation is None else ' = '}{home.source(default)}"


def _value(home: Module, node: ast.Assign | ast.AnnAssign) -> str:
    """A field or constant as it is written; a long value is left out."""
    text = home.source(node)
    if len(text) <= _WIDTH:
        return text
    head = _name(node) or ""
    return head if isinstance(node, ast.Assign) else f"{head}: {home.source(node.annotation)}"


def _documented() -> list[Package]:
    """The packages that others program against, those with fewer needs first: plugins have none of these."""
    chosen = [package for package in packages() if not package.is_plugin]
    return sorted(chosen, key=lambda package: len(package.requirements & {other.distribution for other in chosen}))


def _public(package: Package) -> list[Module]:
    """The modules with pages."""
    modules = [_module(name, path) for name, path in package.modules() if not re.search(r"\._", name)]
    if modules[0].exports is None:
        return modules
    return [module for module in modules if module.exports is not None]


def _resolve(module: Module, name: str) -> tuple[Module, ast.AST]:
    """The module and statement that define a name of a module: imports of our packages are followed."""
    files = {name: path for other in packages() for name, path in other.modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.level or node.module in files):
            parents = (
                []
                if not node.level
                else module.name.split(".")
                if module.path.name == "__init__.py"
                else module.name.split(".")[:-1]
            )
            base = ".".join([*parents[: len(parents) - node.level + 1], *([node.module] if node.module else [])])
            for alias in node.names:
                if (alias.asname or alias.name) != name:
                    continue
                if f"{base}.{alias.name}" in files:
                    home = _module(f"{base}.{alias.name}", files[f"{base}.{alias.name}"])
                    return home, home.tree
                return _resolve(_module(base, files[base]), alias.name)
    for node in module.tree.body:
        if name in _names(node):
            return module, node
    raise ValueError(f"{module.name} exports {name}, which is not found")


@cache
def _module(name: str, path: Path) -> Module:
    text = path.read_text("utf-8")
    return Module(name, path, text, ast.parse(text))


def _name(node: ast.stmt) -> str | None:
    """The name that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    return _target(node) if isinstance(node, ast.Assign | ast.AnnAssign) else None


def _target(node: ast.Assign | ast.AnnAssign) -> str | None:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _names(node: ast.stmt) -> list[str]:
    """All names that a statement defines: `a, b = ...` has two."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        return [item.id for item in node.targets[0].elts if isinstance(item, ast.Name)]
    name = _name(node)
    return [] if name is None else [name]


def _is_public(node: ast.stmt) -> bool:
    name = _name(node)
    return name is not None and not name.startswith("_")


def _doc(node: ast.Module | ast.ClassDef | Function, where: str) -> str:
    text = ast.get_docstring(node)
    if not text:
        raise ValueError(f"{where} has no docstring")
    return text


def _first(text: str) -> str:
    """The first paragraph, on one line."""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split())


def _text(doc: str) -> list[str]:
    """A docstring as Markdown: examples, and what is indented after an empty line, become blocks of code."""
    found: list[str] = []
    for block in re.split(r"\n\n+(?=\S|    \S)", doc):
        # An example may follow its sentence without an empty line.
        prose, mark, example = block.partition("\n>>> ")
        for part in [prose, f">>> {example}"] if mark and not prose.startswith(">>> ") else [block]:
            found += [""] * bool(found) + _block(part)
    return found


def _block(text: str) -> list[str]:
    if text.startswith(">>> "):
        return ["```pycon", *text.splitlines(), "```"]
    if text.startswith("Args:\n"):
        return list(itertools.starmap(_told, parsed(f".\n\n{text}").items()))
    if text.startswith("    "):
        code = textwrap.dedent(text)
        return [f"```{'python' if _is_python(code) else 'text'}", *code.splitlines(), "```"]
    return text.splitlines()


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _code(text: str) -> list[str]:
    return ["```python", text, "```", ""]
