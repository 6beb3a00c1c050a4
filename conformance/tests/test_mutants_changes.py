"""Each kind of change gives the expected program, different from the source; texts for people stay."""

from __future__ import annotations

import importlib
import struct
import sys
from pathlib import Path

import pytest

from delegatekit_conformance.mutants import shaders
from delegatekit_conformance.mutants.blocks import Blocks
from delegatekit_conformance.mutants.changes import KINDS, Change, changes, compiles
from delegatekit_conformance.mutants.dispatches import Dispatches
from delegatekit_conformance.mutants.sites import Plugin

#: Kind, a source, and one of the sources that it becomes.
EXAMPLES = (
    ("number", "x = f(3)", "x = f(4)"),
    ("number", "x = f(3)", "x = f(2)"),
    ("number", "x = -1", "x = (-2)"),
    ("number", "x = 0.5", "x = 1.0"),
    ("boolean", "x = f(y=True)", "x = f(y=False)"),
    ("default", "def f(a, b=2):\n    return a", "def f(a, b=3):\n    return a"),
    ("default", "def f(*, b=False):\n    return b", "def f(*, b=True):\n    return b"),
    ("boundary", "x = a < b", "x = ((a) <= (b))"),
    ("boundary", "x = 0 <= a < b", "x = ((0) <= (a) <= (b))"),
    ("comparison", "x = a == b", "x = ((a) != (b))"),
    ("comparison", "x = a not in b", "x = ((a) in (b))"),
    ("arithmetic", "x = a * b", "x = ((a) // (b))"),
    ("arithmetic", "x += a", "x -= (a)"),
    ("operands", "x = (a + b) - c", "x = ((c) - (a + b))"),
    ("arguments", "f(a, b)", "f(b, a)"),
    ("elements", "height, width = f()", "width, height = f()"),
    ("elements", "x[i, j]", "x[j, i]"),
    ("bounds", "x[a:b]", "x[:b]"),
    ("bounds", "x[a:b]", "x[a:(b) + 1]"),
    ("bounds", "for i in range(n):\n    f(i)", "for i in range((n) - 1):\n    f(i)"),
    ("bounds", "y = x[n]", "y = x[(n) - 1]"),
    ("statement", "def f(x):\n    x.y = 3", "def f(x):\n    pass"),
    ("statement", "def f(x):\n    x.append(2)", "def f(x):\n    pass"),
    ("statement", "for x in y:\n    continue", "for x in y:\n    pass"),
    ("reset", "def reset(self):\n    self.count = 0", "def reset(self):\n    pass"),
    ("reset", "def f(self):\n    self.known.clear()", "def f(self):\n    pass"),
    ("guard", "def f(x):\n    if x:\n        return 1\n    g()", "def f(x):\n    if False:\n        return 1\n    g()"),
    ("condition", "x = a if b else c", "x = a if (not (b)) else c"),
    ("condition", "while not a:\n    f()", "while (a):\n    f()"),
    ("condition", "x = [y for y in z if y]", "x = [y for y in z if (not (y))]"),
    ("logic", "x = a and b", "x = ((a) or (b))"),
    ("logic", "x = a or b", "x = ((a))"),
    ("key", 'x = y["a"] + y["b"]', "x = y['b'] + y[\"b\"]"),
    ("key", 'x = y.get("a")', "x = y.get('a_')"),
    ("copy", "x = y.clone()", "x = (y)"),
    ("copy", "x = bytes(y)", "x = (y)"),
    ("copy", "x = copy.deepcopy(y)", "x = (y)"),
    ("lock", "with self._lock:\n    f()", 'with __import__("contextlib").nullcontext():\n    f()'),
    ("surroundings", "with no_grad():\n    f()", 'with __import__("contextlib").nullcontext():\n    f()'),
    ("cache key", "key = (a, b, c)", "key = (a, c,)"),
    ("cache key", "x = cache[a, b]", "x = cache[(b,)]"),
    ("extreme", "x = min(a, b)", "x = max(a, b)"),
    ("extreme", "x = torch.amax(a)", "x = torch.amin(a)"),
    ("pair", "x = p.height\ny = p.width", "x = p.width\ny = p.width"),
    ("member", "x = (Kind.ONE, Kind.TWO)", "x = (Kind.TWO, Kind.TWO)"),
    ("member", "x = (torch.float32, torch.int8)", "x = (torch.int8, torch.int8)"),
    ("keyword", "f(a, scale=2)", "f(a)"),
    ("sign", "x = -y", "x = (y)"),
)

#: Nothing in these is changed.
LEFT_OUT = (
    '"""Adds 1 to 2."""',
    'def f():\n    """Adds 1 to 2."""',
    "def f():\n    raise ValueError(f(1, 2), 3)",
    "def f():\n    assert x == 1",
    "x: Final[Literal[1, 2]]",
    "def f(x: Literal[1, 2]) -> Literal[3]: ...",
    "def __repr__(self):\n    return f(1, 2)",
    "if TYPE_CHECKING:\n    x = 1",
    'x = f"{a + 1}"',
    "@dataclass(frozen=True)\nclass A: ...",
    "log.warning(a, 1)",
    '__all__ = ["a", "b"]',
    "from a import b, c",
)


def sources(text: str, kind: str = "") -> set[str]:
    data = text.encode()
    return {change.apply(data).decode() for change in changes(data) if kind in ("", change.kind)}


@pytest.mark.parametrize(("kind", "before", "after"), EXAMPLES, ids=[f"{row[0]}-{row[1]}" for row in EXAMPLES])
def test_a_kind_gives_what_it_says(kind: str, before: str, after: str) -> None:
    assert after in sources(before, kind)


def test_each_kind_has_an_example() -> None:
    assert {kind for kind, _, _ in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("text", LEFT_OUT)
def test_texts_for_people_and_checkers_stay(text: str) -> None:
    assert sources(text) == set()


def test_all_changes_of_our_own_code_are_programs_and_other_ones() -> None:
    from delegatekit_conformance.mutants import choice

    data = Path(choice.__file__).read_bytes()
    found = changes(data)
    assert len(found) > 50
    assert all(compiles(change, data) for change in found[:: len(found) // 50])


def test_a_change_after_letters_of_several_bytes_hits_its_place() -> None:
    assert sources('x = "äöü", 1', "number") == {'x = "äöü", 2', 'x = "äöü", 0'}


def test_what_is_the_same_program_or_none_is_not_one() -> None:
    data = b"x = (1)"
    assert not compiles(Change("number", 4, 7, "1", (1, 1)), data)
    assert not compiles(Change("number", 4, 7, "1 +", (1, 1)), data)


@pytest.mark.parametrize(
    ("text", "has_order"),
    [
        ("x in (a, b)", False),
        ("isinstance(x, (a, b))", False),
        ("frozenset((*(a, b), c))", False),
        ("_KINDS = (a, b)\ny = isinstance(x, _KINDS) or z in _KINDS", False),
        ("_KINDS: Final = (a, b)\ny = any(x == kind for kind in _KINDS)", False),
        ("try:\n    f()\nexcept (a, b):\n    pass", False),
        ("KINDS = (a, b)\ny = x in KINDS", True),
        ("_KINDS = (a, b)\ny = x in _KINDS or _KINDS[0]", True),
        ("_KINDS = (a, b)\ny = [f(kind) for kind in _KINDS]", True),
        ("_KINDS = (a, b)", True),
    ],
)
def test_where_the_order_has_no_meaning_elements_stay(text: str, has_order: bool) -> None:
    assert any("b, a" in changed for changed in sources(text, "elements")) is has_order


@pytest.mark.parametrize(
    ("text", "has_order"),
    [("mul(b, x, 2)", False), ("add(b, x, 1)", False), ("sub(b, x)", True), ("x.add(a, b)", True)],
)
def test_where_the_order_has_no_meaning_arguments_stay(text: str, has_order: bool) -> None:
    assert bool(sources(text, "arguments")) is has_order


@pytest.mark.parametrize(
    ("text", "has_order"),
    [
        ("rule = Rule(('relu', 'aten.add.Tensor'), shares=True)", False),
        ("rule = Rule((*_MORE, 'relu', 'aten.add.Tensor'))", False),
        ("_NAMES: Final = ('relu', 'aten.add.Tensor')\nrule = Rule((*_NAMES, 'mm'))", False),
        ("rules = tuple(Rule(name) for name in ('relu', 'aten.add.Tensor'))", False),
        ("rule = Rule(('relu', 'per_channel'))", True),
        ("_NAMES = ('relu', 'aten.add.Tensor')\ndef f(): return names == _NAMES", True),
        ("NAMES = ('relu', 'aten.add.Tensor')", True),
        ("table = dict(zip(('relu', 'aten.add.Tensor'), KINDS))", True),
        ("table = {a: b for a, b in (('relu', 'aten.add.Tensor'),)}", True),
        ("low, high = ('min', 'max')", True),
    ],
)
def test_operators_that_are_looked_up_by_name_stay_where_they_are(text: str, has_order: bool) -> None:
    assert (
        any(
            "'aten.add.Tensor', 'relu'" in one or "'max', 'min'" in one or "'per_channel', 'relu'" in one
            for one in sources(text, "elements")
        )
        is has_order
    )


@pytest.mark.parametrize("parameters", ["*names", "first, *names"])
def test_names_of_operators_stay_where_one_parameter_takes_them_all(parameters: str) -> None:
    text = f"def rule({parameters}): ...\nx = rule('relu', 'aten.add.Tensor')"
    assert bool(sources(text, "arguments")) is (parameters != "*names")


# -- shaders


def module(*instructions: tuple[int, ...]) -> bytes:
    """A SPIR-V module: 2.3 of its specification."""
    words = [0x07230203, 0x00010300, 0, 100, 0]
    for code, *operands in instructions:
        words += [(len(operands) + 1) << 16 | code, *operands]
    return struct.pack(f"<{len(words)}I", *words)


FLOAT, INT = (22, 1, 32), (21, 2, 32, 1)


def becomes(data: bytes) -> set[bytes]:
    return {shaders.apply(data, change) for change in shaders.changes(data)}


def test_constants_of_shaders_change_by_their_type() -> None:
    half, one, zero = 0x3F000000, 0x3F800000, 0x3E800000
    assert becomes(module(FLOAT, (43, 1, 9, half))) == {
        module(FLOAT, (43, 1, 9, one)),
        module(FLOAT, (43, 1, 9, zero)),
    }
    assert becomes(module(INT, (43, 2, 9, 7))) == {module(INT, (43, 2, 9, 6)), module(INT, (43, 2, 9, 8))}


def test_instructions_of_shaders_become_their_opposites_or_exchange_operands() -> None:
    subtraction = becomes(module((131, 1, 9, 3, 4)))
    assert subtraction == {module((129, 1, 9, 3, 4)), module((131, 1, 9, 4, 3))}
    assert module((177, 1, 9, 3, 4)) in becomes(module((179, 1, 9, 3, 4))), "a bound"


def test_a_barrier_of_a_shader_is_left_out_at_the_same_length() -> None:
    (found,) = becomes(module((224, 2, 2, 264)))
    assert found == module((0,), (0,), (0,), (0,))


@pytest.mark.parametrize("data", [b"", b"no shader, but as long as a header", module((43, 1))[:-2], module()[:8]])
def test_what_is_no_module_has_no_changes(data: bytes) -> None:
    assert shaders.changes(data) == []


def test_the_specialization_of_a_shader_has_all_numbers_up_to_the_largest() -> None:
    spec_id = 1
    assert shaders.specialized(module((71, 5, spec_id, 3), (71, 6, spec_id, 0), (71, 7, 33, 9))) == 4
    assert shaders.specialized(module()) == 0


def branching() -> bytes:
    """A shader that branches by its number 0: 1 leads to block 2, 2 to block 3, which leads to 2, all others to 4."""
    return module(
        INT,
        (20, 3),  # bool
        (71, 10, 1, 0),
        (50, 2, 10, 1),  # the 4th instruction: the number
        (43, 2, 11, 7),  # the 5th: what only block 4 uses
        (52, 3, 12, 170, 10, 11),  # the 6th: whether it is 7
        (54, 1, 20, 0, 4),
        (248, 30),
        (251, 10, 33, 1, 31, 2, 32),
        (248, 31),  # block 2
        (253,),
        (248, 32),
        (250, 40, 31, 31),
        (248, 33),
        (128, 2, 41, 11, 11),
        (250, 12, 34, 35),
        (248, 34),
        (253,),
        (248, 35),
        (253,),
        (56,),
    )


def test_the_blocks_that_run_follow_from_the_numbers_of_the_specialization() -> None:
    blocks = Blocks(branching())
    assert blocks.reached((1,)) == 0b0000111
    assert blocks.reached((2,)) == 0b0001111
    assert blocks.reached((7,)) == 0b0110011
    assert blocks.reached((8,)) == 0b1010011
    assert blocks.reached(()) == blocks.all == 0b1111111, "nothing is known"
    places = {number: blocks.of_instruction(number) for number in (1, 4, 5, 6, 9, 15)}
    assert places == {1: blocks.all, 4: 0b10010, 5: 0b10000, 6: 0b10000, 9: 0b10, 15: 0b10000}


TAPE = """
class Tape:
    def dispatch(self, shader, values, push, constants=()):
        return shader


def double(kind):
    return Tape().dispatch("twice", [object()], (7, 8), (kind,))


def double_up_to(size):
    return Tape().dispatch("twice", [object()], [size], constants=(1,))


def fill():
    return Tape().dispatch("fill", [], (7,))
"""


def test_dispatches_of_shaders_are_told_apart_by_their_specialization(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shader_toy"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tape.py").write_text(TAPE)
    (package / "twice.spv").write_bytes(branching())
    (package / "fill.spv").write_bytes(module())
    monkeypatch.syspath_prepend(tmp_path)
    tape = importlib.import_module("shader_toy.tape")
    try:
        dispatches = Dispatches(Plugin("", "shader_toy", package))
        assert tape.fill() == "fill" and dispatches.end() == {"fill.spv": 1}
        dispatches.begin()
        assert tape.double(1) == "twice" and dispatches.end() == {"twice.spv": Blocks(branching()).reached((1,))}
        for size in (2, 7.5, float("inf")):  # these are no constants, though there are as many
            assert tape.double_up_to(size) == "twice"
        assert dispatches.end() == {"twice.spv": Blocks(branching()).reached((1,))}
        assert tape.double(8) == "twice" and dispatches.end() == {"twice.spv": 0b1010111}, "of both"
    finally:
        for name in ("shader_toy", "shader_toy.tape"):
            sys.modules.pop(name)
