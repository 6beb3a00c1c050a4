"""The mutation sites of a plugin, and mutants drawn from them by seed, room by room."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path

from delegatekit.plugins import discovery

from ..errors import InputError
from . import shaders
from .blocks import Blocks
from .changes import Change, Source, changes, compiles

#: A room with this many places has at least this many of the mutants.
_FEWEST = 3
#: Decorators that keep what a function returned: later calls do not reach its lines.
_KEEPING = frozenset({"cache", "lru_cache", "cached_property"})


@dataclass(frozen=True)
class Plugin:
    """The sources of an installed backend."""

    backend: str
    #: The package of its wheel, and the folder that it lies in.
    package: str
    folder: Path

    @classmethod
    def of(cls, backend: str) -> Plugin:
        """The sources of the backend of this name. Raises InputError if it is not installed, or has no folder."""
        try:
            entry_point = discovery.entry_point_of(backend)
        except KeyError:
            unknown = discovery.unknown_backend(backend)
            raise InputError(unknown.what, hint=unknown.hint) from None
        package = entry_point.value.partition(":")[0].partition(".")[0]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations or spec.origin is None:
            raise InputError(f"the module {package} of the backend {backend} is no package in a folder")
        return cls(backend, package, Path(spec.origin).parent.resolve())

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """Its Python sources by path in the folder."""
        return {
            path.relative_to(self.folder).as_posix(): Source(path.read_bytes())
            for path in sorted(self.folder.rglob("*.py"))
        }

    @cached_property
    def shaders(self) -> Mapping[str, bytes]:
        """Its SPIR-V modules by path in the folder."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes() for path in sorted(self.folder.rglob("*.spv"))
        }

    def blocks(self, file: str) -> Blocks:
        """The blocks of one of its SPIR-V modules."""
        return _blocks(self.shaders[file])

    @property
    def digest(self) -> str:
        """A digest of everything in the folder that may affect its behavior."""
        return digest(self.folder)


@lru_cache(maxsize=64)
def _blocks(data: bytes) -> Blocks:
    return Blocks(data)


#: The folder of these modules, which affect no verdict.
_HERE = Path(__file__).resolve().parent


def digest(folder: Path) -> str:
    """A digest of the files in a folder and their names, without these modules and Python's compiled code."""
    found = hashlib.sha256()
    for path in sorted(folder.resolve().rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and _HERE not in path.parents:
            data = path.read_bytes()
            found.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


@dataclass(frozen=True)
class Mutant:
    """A plugin with one change."""

    #: The file that is changed, in the plugin's folder: "operators/spatial.py".
    file: str
    kind: str
    #: The line (from 1) where the change begins, and its text; for shaders the instruction.
    line: int
    text: str
    before: str
    after: str
    #: The file's content in the mutant.
    content: bytes
    #: The lines of which one must run for the change to matter.
    lines: tuple[int, int] = (0, 0)
    #: The first byte of the change.
    start: int = 0
    #: Of a shader the blocks of which one must run for the change to matter: bit n is block n (`blocks`).
    blocks: int = 0

    @property
    def room(self) -> str:
        """The first part of the file's name: "operators", "options"."""
        return room_of(self.file)

    @property
    def name(self) -> str:
        """The mutant in one line, alike in all runs."""
        return f"{self.file}:{self.line} {self.kind}: {_short(self.before)} -> {_short(self.after)}"


def room_of(file: str) -> str:
    """The room of a plugin that a file belongs to."""
    return file.partition("/")[0].removesuffix(".py")


def _short(text: str, most: int = 100) -> str:
    words = " ".join(text.split())
    return words if len(words) <= most else f"{words[: most - 4]} ..."


def draw(plugin: Plugin, count: int, seed: int, rooms: Sequence[str] = ()) -> Iterator[Mutant]:
    """All mutants in an order in which the first `count`, and any beginning, have their share of each room.

    A room has mutants by the number of its places, and a few at least. In a room rare kinds of changes occur more often
    than their share, and a place comes once. Raises InputError for a room that the plugin does not have.
    """
    places = _places(plugin)
    unknown = set(rooms) - set(places)
    if unknown:
        raise InputError(
            f"no room {', '.join(sorted(unknown))} with code in {plugin.package}; it has {', '.join(places)}"
        )
    chosen = {room: found for room, found in places.items() if not rooms or room in rooms}
    queues = {room: _shuffled(plugin, found, random.Random(f"{seed}/{room}")) for room, found in chosen.items()}
    sizes = {room: len(found) for room, found in chosen.items()}
    while queues:
        for room in _turns(shares({room: sizes[room] for room in queues}, count)):
            mutant = next(queues[room], None) if room in queues else None
            if mutant is not None:
                yield mutant
            else:
                queues.pop(room, None)


def shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """The number of mutants of each room, of `count`: a minimum each, the rest by size. Above `count` for many rooms.

    >>> shares({"operators": 90, "options": 8, "empty": 0}, 12)
    {'operators': 9, 'options': 3, 'empty': 0}
    """
    least = {room: min(size, _FEWEST) for room, size in sizes.items()}
    rest = max(0, count - sum(least.values()))
    total = sum(sizes.values()) or 1
    exact = {room: rest * size / total for room, size in sizes.items()}
    found = {room: least[room] + math.floor(exact[room]) for room in sizes}
    by_rest = sorted(sizes, key=lambda room: (math.floor(exact[room]) - exact[room], room))
    for room in by_rest[: max(0, rest - sum(map(math.floor, exact.values())))]:
        found[room] += 1
    return {room: min(number, sizes[room]) for room, number in found.items()}


def _turns(numbers: Mapping[str, int]) -> list[str]:
    """The rooms, each repeated by its number, evenly mixed."""
    turns = [((turn + 0.5) / number, room) for room, number in numbers.items() for turn in range(number)]
    return [room for _, room in sorted(turns)]


#: A place: a file, a kind, and its possible changes.
_Place = tuple[str, str, Sequence[Change]]


def _places(plugin: Plugin) -> dict[str, list[_Place]]:
    """The places of each room."""
    found: dict[str, list[_Place]] = {}
    every = {file: changes(source.data) for file, source in plugin.sources.items()}
    every |= {file: shaders.changes(data) for file, data in plugin.shaders.items()}
    for file, edits in every.items():
        places: dict[tuple[str, int, int], list[Change]] = {}
        for change in edits:
            places.setdefault((change.kind, change.start, change.end), []).append(change)
        for (kind, _, _), alternatives in places.items():
            found.setdefault(room_of(file), []).append((file, kind, alternatives))
    return found


def _shuffled(plugin: Plugin, places: Sequence[_Place], source: random.Random) -> Iterator[Mutant]:
    """The mutants of one room at random, one a place."""
    kinds: dict[str, list[_Place]] = {}
    for place in places:
        kinds.setdefault(place[1], []).append(place)
    for group in kinds.values():
        source.shuffle(group)
    while kinds:
        # The square root is a compromise between equal places and equal kinds.
        kind = source.choices(list(kinds), [math.sqrt(len(group)) for group in kinds.values()])[0]
        file, _, alternatives = kinds[kind].pop()
        if not kinds[kind]:
            del kinds[kind]
        mutant = mutant_of(plugin, file, source.choice(alternatives))
        if mutant is not None:
            yield mutant


def mutant_of(plugin: Plugin, file: str, change: Change) -> Mutant | None:
    """The mutant with one change, or None if that is no program or the same one."""
    if file in plugin.shaders:
        return Mutant(
            file,
            change.kind,
            change.lines[0],
            *shaders.words(plugin.shaders[file], change),
            shaders.apply(plugin.shaders[file], change),
            blocks=plugin.blocks(file).of_instruction(change.lines[0]),
        )
    source = plugin.sources[file]
    if not compiles(change, source.data):
        return None
    line = change.lines[0]
    before = source.data[change.start : change.end].decode()
    content = change.apply(source.data)
    text = source.line(line)
    return Mutant(file, change.kind, line, text, before, change.after, content, change.lines, change.start)


def every_mark(plugin: Plugin) -> Iterator[tuple[str, str, str, str]]:
    """File, line of text, before and after of each possible change."""
    for file, source in plugin.sources.items():
        for change in changes(source.data):
            before = source.data[change.start : change.end].decode()
            yield file, source.line(change.lines[0]), before, change.after
    for file, data in plugin.shaders.items():
        for change in shaders.changes(data):
            yield file, *shaders.words(data, change)


# -- the surroundings of a place -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Surroundings:
    """The facts of a changed place by which the cases that may notice it are found."""

    #: The lines of the function that it lies in, or None in a module's or class' own body.
    function: tuple[int, int] | None
    #: The lines of the statement; of one that has others inside, those before them.
    statement: tuple[int, int]
    #: True if its lines run once for many examples: at import, or in a function whose result is kept.
    once: bool
    #: Lines (file, line) of function bodies that name what the place defines, if it runs once, or at import, too.
    users: frozenset[tuple[str, int]]
    #: The operators that the statement names: "aten.add.Tensor", or "aten.add" for all its overloads.
    operators: frozenset[str]
    #: Lines (file, line) of the functions that a table's row names, or whose head has the place: an example that runs
    #: them uses the change.
    bodies: frozenset[tuple[str, int]] = frozenset()
    #: The texts in a table's row, or in the smallest other part that has any: names of flags and so on.
    texts: frozenset[str] = frozenset()


_OPERATOR = re.compile(r"(?:aten\.)?([a-z_0-9]+(?:\.[A-Za-z_0-9]+)?)$")


def surroundings(plugin: Plugin, mutant: Mutant) -> Surroundings:
    """The surroundings of a mutant's place."""
    if mutant.file in plugin.shaders:
        return _of_shader(plugin, mutant)
    source = plugin.sources[mutant.file]
    node = _innermost(source, mutant.lines[0], mutant.lines[1])
    function = source.function(node)
    if function is not None:
        once = runs_once(plugin, function)
        users = _users(plugin, {function.name}) | _made_by(mutant.file, function) if once else frozenset()
        lines = (function.lineno, function.end_lineno or function.lineno)
        return Surroundings(lines, own_lines(node), _is_kept(function), users, frozenset())
    statement = _outermost(source, node)
    names = _defined(statement, node)
    parts = _parts(statement, *mutant.lines)
    operators = next(filter(None, map(_operators, parts)), frozenset())
    texts = next(filter(None, map(_texts, parts)), frozenset())
    bodies = _bodies(plugin, mutant.file, statement, parts)
    return Surroundings(None, own_lines(node), True, _users(plugin, names), operators, bodies, texts)


def _parts(statement: ast.AST, first: int, last: int) -> list[list[ast.AST]]:
    """The parts of a statement that have these lines, the smallest first: of a table, the row before the table."""
    found: list[tuple[int, list[ast.AST]]] = []
    for node in ast.walk(statement):
        whole = [[node]]
        if isinstance(node, ast.Dict):
            whole += [[key, value] for key, value in zip(node.keys, node.values, strict=True) if key is not None]
        for nodes in whole:
            begin, end = getattr(nodes[0], "lineno", 0), getattr(nodes[-1], "end_lineno", 0)
            if begin and begin <= first and last <= end:
                found.append((end - begin, nodes))
    return [nodes for _, nodes in sorted(found, key=lambda item: item[0])]


def _operators(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The operators that are named in the nodes."""
    return frozenset(match[1] for text in _texts(nodes) if (match := _OPERATOR.match(text)))


def _texts(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """The texts in the nodes."""
    parts = (part for node in nodes for part in ast.walk(node))
    return frozenset(part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def own_lines(node: ast.AST) -> tuple[int, int]:
    """The lines of a statement without those of the statements in it."""
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    body = getattr(node, "body", None)
    return first, max(first, body[0].lineno - 1) if isinstance(body, list) and body else last


def _of_shader(plugin: Plugin, mutant: Mutant) -> Surroundings:
    """A shader's users are the lines that have its name as a text."""
    stem = Path(mutant.file).stem
    users = set()
    names = set()
    for file, source in plugin.sources.items():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value == stem:
                if source.function(node) is not None:
                    users.add((file, node.lineno))
                else:
                    names |= _defined(_outermost(source, node), node)
    return Surroundings(None, (0, 0), True, frozenset(users) | _users(plugin, names), frozenset())


def _innermost(source: Source, first: int, last: int) -> ast.AST:
    """The smallest statement that has these lines, or the function whose head has them."""
    best: ast.AST = source.tree
    size = math.inf
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            marks = getattr(node, "decorator_list", ())
            begin = min([node.lineno, *(mark.lineno for mark in marks)])
            end = node.end_lineno or node.lineno
            if begin <= first and last <= end and end - begin < size:
                best, size = node, end - begin
    return best


def _outermost(source: Source, node: ast.AST) -> ast.AST:
    """The statement of a module's or class' body that has the node."""
    chain = [node, *source.above(node)]
    for inner, outer in pairwise(chain):
        if isinstance(outer, ast.Module | ast.ClassDef) and isinstance(inner, ast.stmt):
            return inner
    return node


def _defined(statement: ast.AST, node: ast.AST) -> set[str]:
    """The names that a statement of a module or class defines."""
    match statement:
        case ast.Assign(targets=targets):
            return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
    return set()


def _bodies(
    plugin: Plugin, file: str, statement: ast.AST, parts: Iterable[Sequence[ast.AST]]
) -> frozenset[tuple[str, int]]:
    """The lines of the function whose head has the place, or of those that the smallest part with such names has."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return frozenset((file, line.lineno) for line in statement.body)
    for nodes in parts:
        names = {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}
        found = frozenset(place for name in names for place in _body(plugin, file, name))
        if found:
            return found
    return frozenset()


def _body(plugin: Plugin, file: str, name: str) -> Iterator[tuple[str, int]]:
    """The lines of a function that a module defines, or imports from another one of the plugin, and does not call."""
    if _is_imported(plugin, name):
        return
    files = [file]
    for node in plugin.sources[file].tree.body:
        if isinstance(node, ast.ImportFrom) and name in [alias.asname or alias.name for alias in node.names]:
            files = [other for other in plugin.sources if Path(other).stem == (node.module or "").split(".")[-1]]
    for other in files:
        for node in plugin.sources[other].tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                yield from ((other, line.lineno) for line in node.body)


def _users(plugin: Plugin, names: set[str]) -> frozenset[tuple[str, int]]:
    """The lines in functions with one of the names, or with one that a module or class defines by it.

    A module may define it by a function with the name in it: that function runs at import, and its results
    are functions that run later.
    """
    found: set[tuple[str, int]] = set()
    known, left = set(names), set(names)
    called: set[str] = set()
    while left:
        using = [place for file, source in plugin.sources.items() for place in _uses(file, source, left)]
        found.update((file, line) for file, line, defined, inside in using if inside)
        functions = {inside for _, _, _, inside in using if inside} - called
        for file, source in plugin.sources.items():
            for node in source.tree.body:
                if isinstance(node, ast.FunctionDef) and node.name in functions and _is_imported(plugin, node.name):
                    found |= _made_by(file, node)
        called |= functions
        calling = [place for file, source in plugin.sources.items() for place in _uses(file, source, functions)]
        using += [place for place in calling if not place[3]]
        left = {name for _, _, defined, _ in using for name in defined} - known
        known |= left
    return frozenset(found)


def _made_by(file: str, function: ast.AST) -> frozenset[tuple[str, int]]:
    """The lines of the functions in a function, which it returns, or which capture its arguments."""
    inner = (node for part in ast.iter_child_nodes(function) for node in ast.walk(part))
    made = [node for node in inner if isinstance(node, ast.FunctionDef | ast.Lambda)]
    bodies = (body for node in made for body in (node.body if isinstance(node.body, list) else [node.body]))
    return frozenset((file, line) for body in bodies for line in range(body.lineno, (body.end_lineno or 0) + 1))


def runs_at_import(plugin: Plugin, mutant: Mutant) -> bool:
    """True if a mutant's place is in a function that runs at import: for the first example that imports it."""
    source = plugin.sources[mutant.file]
    function = source.function(_innermost(source, *mutant.lines))
    return function is not None and _is_imported(plugin, function.name)


def runs_once(plugin: Plugin, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """True if a function runs once for many examples: at import, or because its result is cached."""
    return _is_kept(function) or _is_imported(plugin, function.name)


def _is_kept(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(_last_name(mark) in _KEEPING for mark in function.decorator_list)


def _is_imported(plugin: Plugin, name: str) -> bool:
    """True if a module's or class' own body calls a function of the name."""
    return any(
        isinstance(node, ast.Call) and _last_name(node.func) == name and source.function(node) is None
        for source in plugin.sources.values()
        if name in source.words
        for node in ast.walk(source.tree)
    )


def _uses(file: str, source: Source, names: set[str]) -> Iterator[tuple[str, int, set[str], str]]:
    """File and line of each use of one of the names, with the names that the statement defines, or its function."""
    if not names & source.mentioned:
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=name) if name in names:
                function = source.function(node)
                defined = set() if function else _defined(_outermost(source, node), node)
                yield file, node.lineno, defined, function.name if function else ""


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
