"""Mutants are drawn by seed, tried with the examples that reach them, and killed by new faults alone."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mutant_cases
import numpy as np
import pytest
import torch

import delegatekit
from delegatekit.plugins import discovery
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.expectations import load
from delegatekit_conformance.mutants import equivalent, infection, reach, replay
from delegatekit_conformance.mutants.campaign import Campaign, Request
from delegatekit_conformance.mutants.changes import Source as PythonSource
from delegatekit_conformance.mutants.changes import changes
from delegatekit_conformance.mutants.choice import Chooser, beyond, within
from delegatekit_conformance.mutants.chosen import Attempt, pack, unpack
from delegatekit_conformance.mutants.deeper import Deeper
from delegatekit_conformance.mutants.engine import Found, Trial, judge
from delegatekit_conformance.mutants.example import Example, mask, numbers_of, short
from delegatekit_conformance.mutants.overlay import overlay
from delegatekit_conformance.mutants.page import TITLE, table, updated
from delegatekit_conformance.mutants.probe import differs, probe, watching
from delegatekit_conformance.mutants.score import Judged, Rate, Score, merge, read, write
from delegatekit_conformance.mutants.sites import Mutant, Plugin, draw, mutant_of, runs_at_import, shares, surroundings
from delegatekit_conformance.runner import Source

pytest.importorskip("coverage")

CONTEXT = Context("seeded", PROFILES["quick"])
SUMS = mutant_cases.SUMS


@pytest.fixture
def toy(
    install_plugin: Callable[..., Path], toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Plugin]:
    """The installed backend "seeded" with the package of `mutant_cases`, and a cache folder of the test's own."""
    folder = install_plugin("seeded")
    (folder / mutant_cases.PACKAGE).mkdir()
    module = folder / "delegatekit_seeded_plugin.py"
    module.rename(folder / mutant_cases.PACKAGE / "__init__.py")
    (folder / mutant_cases.PACKAGE / "sums.py").write_text(SUMS)
    (points,) = folder.glob("*.dist-info/entry_points.txt")
    points.write_text(f"[delegatekit.backends]\nseeded = {mutant_cases.PACKAGE}\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(folder), os.environ["PYTHONPATH"])))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    discovery.refresh()
    yield Plugin.of("seeded")
    for name in [name for name in sys.modules if name.partition(".")[0] == mutant_cases.PACKAGE]:
        del sys.modules[name]


def mutant(plugin: Plugin, kind: str, before: str, after: str) -> Mutant:
    """The change of the toy's sums from `before` to `after`."""
    data = plugin.sources["sums.py"].data
    for change in changes(data):
        if (change.kind, data[change.start : change.end].decode(), change.after) == (kind, before, after):
            found = mutant_of(plugin, "sums.py", change)
            assert found is not None
            return found
    raise AssertionError(f"no {kind} {before} -> {after}")


def trial(mutant: Mutant, *attempts: Attempt) -> Trial:
    return Trial(mutant.name, "quick", "seeded", mutant.file, mutant.content, attempts, len(attempts), len(attempts))


def attempt(case: str, example: Any, *, limit: float = 10.0, verdict: str = "correct, delegated") -> Attempt:
    return Attempt(case, int(example or 0), pack(example), 0.1, verdict, 0, 0, 0, limit=limit)


def judged(mutant: Mutant, *attempts: Attempt, source: Source = mutant_cases.source) -> Found:
    return judge(trial(mutant, *attempts), CONTEXT, load("seeded"), source)


# -- drawing


def test_one_seed_draws_the_same_mutants_of_all_rooms_and_another_draws_others() -> None:
    plugin = Plugin.of("reference")
    first, again, other = ([m.name for m in islice(draw(plugin, 30, seed), 30)] for seed in (1, 1, 2))
    assert first == again
    assert len(set(first) & set(other)) < 10
    rooms = Counter(name.partition(":")[0].partition("/")[0].removesuffix(".py") for name in first)
    assert set(rooms) >= {"operators", "runtime", "blob", "ir", "compile", "support", "plugin"}


def test_a_place_is_drawn_once_until_all_are_drawn(toy: Plugin) -> None:
    names = [mutant.name for mutant in draw(toy, 5, 0)]
    assert len(names) == len(set(names)) > 15
    assert sum(":5 boundary" in name for name in names) == 1, "one alternative a place"


def test_a_room_that_the_plugin_does_not_have_is_an_error(toy: Plugin) -> None:
    with pytest.raises(InputError, match="no room cellar"):
        next(draw(toy, 5, 0, ["cellar"]))
    assert {mutant.room for mutant in draw(toy, 5, 0, ["sums"])} == {"sums"}


def test_each_room_has_some_and_together_they_are_as_many_as_asked_for() -> None:
    assert shares({"large": 1000, "small": 10, "tiny": 1}, 100) == {"large": 95, "small": 4, "tiny": 1}
    assert shares({"a": 2, "b": 9}, 4) == {"a": 2, "b": 3}, "more where the rooms' least is more"


def test_what_a_module_defines_concerns_the_functions_that_use_it(toy: Plugin) -> None:
    known = surroundings(toy, mutant(toy, "number", "5", "6"))
    assert known.once
    assert known.function is None
    assert known.users == {("sums.py", 5)}


def test_a_function_that_runs_at_import_concerns_those_who_use_what_it_makes(toy: Plugin) -> None:
    module = Path(toy.folder) / "sums.py"
    made = "def made(x):\n    return x - 7\n\n\nTABLE = made(9)\n\n\ndef used(x):\n    return x + TABLE\n"
    module.write_text(f"{SUMS}\n\n{made}")
    toy = Plugin.of("seeded")
    place = mutant(toy, "number", "7", "8")
    known = surroundings(toy, place)
    assert runs_at_import(toy, place) and not known.once
    assert known.users == {("sums.py", 28)}


def test_what_a_function_is_made_of_at_import_concerns_those_who_run_it(toy: Plugin) -> None:
    module = Path(toy.folder) / "sums.py"
    run = "    def run(x):\n        return x + kind\n\n    return run\n"
    made = f"OF = {{'a': 7}}\n\n\ndef made(name):\n    kind = OF[name] + 11\n\n{run}"
    module.write_text(f"{SUMS}\n\n{made}\n\nTABLE = made('a')\n")
    toy = Plugin.of("seeded")
    assert ("sums.py", 27) in surroundings(toy, mutant(toy, "number", "7", "8")).users
    assert ("sums.py", 27) in surroundings(toy, mutant(toy, "number", "11", "12")).users


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [("3", "4", {21, 22}), ("-1", "0", {21, 22}), ("'b'", "'a'", {26}), ("'c'", "'b'", {21, 22, 26})],
    ids=["row", "default", "other row", "row without a function"],
)
def test_a_row_or_a_default_concerns_the_functions_that_are_called_with_it(
    toy: Plugin, before: str, after: str, lines: set[int]
) -> None:
    module = Path(toy.folder) / "sums.py"
    functions = "def one(x, y=-1):\n    z = x\n    return z\n\n\ndef other(x):\n    return x\n"
    module.write_text(f"{SUMS}\n\n{functions}\n\nTABLE = {{\n    'a': (one, 3),\n    'b': other,\n    'c': 8,\n}}\n")
    toy = Plugin.of("seeded")
    kind = {"3": "number", "-1": "default"}.get(before, "key")
    assert {line for _, line in surroundings(toy, mutant(toy, kind, before, after)).bodies} == lines


# -- what is reached


def test_the_map_says_which_example_runs_which_lines_also_in_other_processes(toy: Plugin, tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    found = reach.record(toy, CONTEXT, path, source=mutant_cases.source)
    by_name = {(example.case, example.index): example for example in found}
    assert len(by_name) == 6
    greater, other = by_name["sums/double", 2], by_name["sums/double", 0]
    assert greater.reaches("sums.py", mask(6, 6))
    assert not greater.reaches("sums.py", mask(7, 7))
    assert other.reaches("sums.py", mask(7, 7))
    assert not other.reaches("sums.py", mask(6, 6))
    assert by_name["sums/count_down", 0].lines["sums.py"] == mask(11, 13)
    assert by_name["manners/elsewhere", 0].reaches("sums.py", mask(6, 6)), "a fresh process"
    assert path.stat().st_mode & 0o077 == 0
    before = path.read_bytes()
    assert reach.record(toy, CONTEXT, path, source=mutant_cases.source) == found
    assert path.read_bytes() == before, "read, and not made again"


def test_examples_that_come_after_the_first_are_on_the_map(toy: Plugin, tmp_path: Path) -> None:
    found = reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.in_two_parts)
    assert [(example.case, example.index) for example in found] == [
        *(("more/double", index) for index in range(3)),
        ("settled/double", 0),
    ]
    killed = judged(mutant(toy, "number", "2", "3"), *map(Chooser.attempt, found), source=mutant_cases.in_two_parts)
    assert killed.killed and killed.case == "more/double"


def test_a_map_that_was_cut_off_is_completed(toy: Plugin, tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    found = reach.record(toy, CONTEXT, path, source=mutant_cases.in_this_process)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[2][:30])
    again = reach.record(toy, CONTEXT, path, source=mutant_cases.in_this_process)
    before = [(example.case, example.index, example.lines["sums.py"]) for example in found]
    assert [(example.case, example.index, example.lines["sums.py"]) for example in again] == before


def test_a_map_of_other_sources_keeps_what_runs_the_same_code_and_draws_the_same(toy: Plugin, tmp_path: Path) -> None:
    path = tmp_path / "map.jsonl"
    found = reach.record(toy, CONTEXT, path, source=mutant_cases.in_this_process)
    lines = {(example.case, example.index): example.lines["sums.py"] for example in found}
    # Everything is a line lower, and one function is another one.
    (toy.folder / "sums.py").write_text("#\n" + SUMS.replace("x -= 1", "x = x - 1"))
    moved = reach.record(Plugin.of("seeded"), CONTEXT, path, source=mutant_cases.in_this_process)
    assert {(example.case, example.index): example.lines["sums.py"] >> 1 for example in moved} == lines
    assert {example.case: example.carried for example in moved} == {"sums/double": True, "sums/count_down": False}
    # A number that all functions may use.
    (toy.folder / "sums.py").write_text("#\n" + SUMS.replace("LIMIT = 5", "LIMIT = 6"))
    changed = reach.record(Plugin.of("seeded"), CONTEXT, path, source=mutant_cases.in_this_process)
    assert not any(example.carried for example in changed)
    # Other examples of the same code.
    (toy.folder / "sums.py").write_text(SUMS.replace("LIMIT = 5", "LIMIT = 6"))
    others = reach.record(Plugin.of("seeded"), CONTEXT, path, source=mutant_cases.with_other_numbers)
    assert {example.case: example.carried for example in others} == {"sums/double": False, "sums/count_down": True}


def test_what_was_seen_with_other_sources_is_verified_before_it_counts(toy: Plugin) -> None:
    more = mutant(toy, "number", "2", "3")
    carried = replace(attempt("sums/double", 7), sound=False)
    assert judged(more, carried).killed
    wrong = replace(attempt("wrong/double", 2), sound=False)
    assert not judged(more, wrong, source=mutant_cases.with_more_in_default).killed, "wrong without the change, too"
    known = replace(attempt("sums/working", 4), delegated_nodes=2, delegate_operators=2)
    assert judged(more, known, source=mutant_cases.working).work
    carried = replace(known, sound=False)
    assert not judged(more, carried, source=mutant_cases.working).told, "as much without the change"


def test_a_mutant_is_tried_with_what_reaches_it_one_way_after_the_other(toy: Plugin, tmp_path: Path) -> None:
    chooser = Chooser(toy, reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.in_this_process))
    found = chooser.attempts(mutant(toy, "number", "2", "3"))
    assert [attempt.name for attempt in found] == ["sums/double#2"]
    found = chooser.attempts(mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))"))
    assert {attempt.name for attempt in found[:2]} in (
        {"sums/double#2", name} for name in ("sums/double#0", "sums/double#1")
    )
    assert chooser.attempts(mutant(toy, "arithmetic", "x + 1", "((x) - (1))")) == [], "no example reaches it"
    found = chooser.attempts(mutant(toy, "number", "5", "6"))
    assert len(found) == 4, "run at import: who uses it, and a sample"
    found = [replace(one, seconds=1.0) for one in found]
    assert within(found, 1e6) == found and within(found, 0.0) == found[:1]
    assert beyond(found, 0.0, 1e6) == found and beyond(found, 1.5, 2.0) == found[1:3]


def test_where_a_line_reads_an_option_examples_with_its_values_come_first(toy: Plugin, tmp_path: Path) -> None:
    sums = SUMS.replace("    return x * 2\n", "    return x * options.factor\n")
    (toy.folder / "sums.py").write_text(sums)
    line = sums[: sums.index("options")].count("\n") + 1
    common = {
        "packed": "",
        "verdict": "correct, delegated",
        "delegated_nodes": 1,
        "fallback_calls": 0,
        "delegate_bytes": 1,
        "tags": {},
    }
    cases = {"sums/double": 0.1, "options/factor=3": 1.0, "options/other=1": 0.2}
    examples = [
        Example(case, 0, seconds=seconds, lines={"sums.py": 1 << line}, **common)  # type: ignore[arg-type]
        for case, seconds in cases.items()
    ]
    plugin = Plugin.of("seeded")
    found = Chooser(plugin, examples).attempts(
        mutant(plugin, "arithmetic", "x * options.factor", "((x) // (options.factor))")
    )
    assert [attempt.case for attempt in found] == ["options/factor=3", "sums/double", "options/other=1"]


def test_rules_about_a_module_come_first_for_what_runs_when_it_is_imported(toy: Plugin) -> None:
    def example(case: str, seconds: float, verdict: str, **lines: int) -> Example:
        return Example(case, 0, "", seconds, verdict, 1, 0, 1, lines=lines, tags={})

    examples = [
        example("operators/double", 0.1, "correct, delegated", **{"sums.py": -1}),
        example("contract/options-defaults", 2.0, "passed"),
        example("contract/sums-are-told", 3.0, "passed"),
    ]
    found = Chooser(toy, examples).attempts(mutant(toy, "number", "5", "6"))
    assert [attempt.case for attempt in found][:2] == ["contract/sums-are-told", "operators/double"]


def test_the_map_has_what_processes_run_that_end_without_a_last_step(toy: Plugin, tmp_path: Path) -> None:
    (found,) = reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.apart)
    assert found.reaches("sums.py", mask(6, 6))


def test_of_a_file_that_nobody_reaches_different_examples_are_tried(toy: Plugin) -> None:
    lines = {"__init__.py": 1 << 3}
    known = Example("operators/double", 0, "", 0.1, "correct, delegated", 1, 0, 1, lines=lines, tags={})
    (attempt,) = Chooser(toy, [known]).attempts(mutant(toy, "comparison", "x > 0", "((x) <= (0))"))
    assert attempt.case == "operators/double"


def test_of_a_table_those_are_tried_first_that_are_given_a_text_of_the_row(toy: Plugin) -> None:
    (Path(toy.folder) / "sums.py").write_text(f"{SUMS}\n\nFLAGS = {{\n    '--slow': 33,\n    '--fast': 44,\n}}\n")
    toy = Plugin.of("seeded")
    lines = {"sums.py": 1 << 3}
    known = [
        Example("options/program", number, pack(flag), 0.1, "correct, delegated", 1, 0, 1, lines=lines, tags={})
        for number, flag in enumerate(("--other", "--fast", "--slow"))
    ]
    first = [
        Chooser(toy, known).attempts(mutant(toy, "number", *change))[0].index for change in (("33", "34"), ("44", "45"))
    ]
    assert first == [2, 1]


def test_examples_that_make_no_difference_to_a_changed_expression_are_not_tried(toy: Plugin, tmp_path: Path) -> None:
    chooser = Chooser(toy, reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.in_this_process))
    opposite = mutant(toy, "comparison", "x > 0", "((x) <= (0))")
    boundary = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    overlapping = mutant(toy, "comparison", "x > LIMIT", "((x) <= (LIMIT))")
    wanted = [(one, chooser.attempts(one)) for one in (opposite, boundary, overlapping)]
    found = infection.record(toy, CONTEXT, wanted, source=mutant_cases.in_this_process)
    assert [one.name for one in found.order(opposite, wanted[0][1])] == ["sums/count_down#0"]
    assert found.order(boundary, wanted[1][1]) == [], "no example doubles 5"
    assert found.order(overlapping, wanted[2][1]) == wanted[2][1], "of what has no probe nothing is known"


def test_of_a_constant_the_expressions_count_that_read_it(toy: Plugin, tmp_path: Path) -> None:
    chooser = Chooser(toy, reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.in_this_process))
    higher = mutant(toy, "number", "5", "6")
    reaching = chooser.attempts(higher)
    found = infection.record(toy, CONTEXT, [(higher, reaching)], source=mutant_cases.in_this_process)
    assert len(found.known[higher.name]) == 3
    assert found.order(higher, reaching) == [], "no example doubles 6"


@pytest.mark.parametrize(
    ("more", "reads"),
    [
        ("def half(x):\n    return x // 2 if x > LIMIT and 2 * LIMIT > x else LIMIT", 2),
        ("HALF = LIMIT // 2", 0),
        ("def limits(x):\n    return f'{LIMIT} {x}'", 0),
        ("@cache\ndef half(x):\n    return LIMIT // x", 0),
    ],
)
def test_a_constant_is_followed_where_functions_read_it_in_each_example(toy: Plugin, more: str, reads: int) -> None:
    (Path(toy.folder) / "sums.py").write_text(f"{SUMS}\n\n{more}\n")
    plugin = Plugin.of("seeded")
    probe = infection.probe_of(plugin, mutant(plugin, "number", "5", "6"), 7)
    assert len(probe.sites if probe else ()) == reads
    if probe is not None:
        assert ("sums.py", "x // 2 if x > {0} and 2 * {0} > x else {0}") in [
            (file, place.after.replace(f"{infection.MODULE}.constants[7]", "{0}")) for file, place in probe.sites
        ]


def test_of_what_other_examples_evaluated_in_the_place_of_these_nothing_is_known(toy: Plugin) -> None:
    these = [attempt("sums/double", 0), attempt("sums/double", 1)]
    once = mutant(toy, "number", "5", "6")
    run = frozenset({"sums/double#0", "sums/double#1", "sums/double#2"})
    assert infection.Infections({once.name: {"sums/double#2": True}}, run).order(once, these) == these
    assert infection.Infections({once.name: {"sums/double#1": True}}, run).order(once, these) == these[1:]
    known = {once.name: {"sums/double#1": True}}
    assert infection.Infections(known, run, frozenset({once.name})).order(once, these) == these


def test_what_runs_in_an_example_that_did_not_run_it_before_runs_once_in_a_process(toy: Plugin, tmp_path: Path) -> None:
    chooser = Chooser(toy, reach.record(toy, CONTEXT, tmp_path / "map", source=mutant_cases.in_this_process))
    higher = mutant(toy, "number", "5", "6")
    wanted = [(higher, chooser.attempts(higher))]
    given = {"source": mutant_cases.in_this_process}
    assert infection.record(toy, CONTEXT, wanted, **given, reaches=chooser.reaches).once == frozenset()
    elsewhere = infection.record(toy, CONTEXT, wanted, **given, reaches=lambda attempt, file, lines: False)
    assert elsewhere.once == {higher.name}


# -- what is replayed


def kept(tmp_path: Path, name: str, module: torch.nn.Module) -> str:
    x = torch.arange(6.0)
    with replay.keeping() as found:
        data = delegatekit.lower(module, (x, x), backends=["reference"]).buffer
        method = delegatekit.load(data)["forward"]
        for inputs in ((x, x), (x + 1, x)):
            method.run(inputs)
    assert found.write(tmp_path / name)
    return str(tmp_path / name)


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Product(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y


@pytest.mark.parametrize(
    ("after", "same"),
    [
        ("", {"product": True, "sum": True, "another product": True}),
        (' + ("add" in step.operator)', {"product": True, "sum": False, "another product": True}),
        (' / ("add" not in step.operator)', {"product": True, "sum": False, "another product": True}),
        (' if "add" not in step.operator else __import__("os").abort()', {"product": True}),
    ],
    ids=["as it is", "another result", "an error or infinity", "a crash"],
)
def test_examples_are_replayed_with_a_changed_runtime(tmp_path: Path, after: str, same: dict[str, bool]) -> None:
    plugin, file = Plugin.of("reference"), "runtime/interpreter.py"
    replays = {"product": kept(tmp_path, "a", Product()), "sum": kept(tmp_path, "b", Sum())}
    replays["another product"] = replays["product"]
    line = "return self.functions[index](*args, **kwargs)"
    content = plugin.sources[file].data.decode()
    assert content.count(line) == 1
    changed = {file: content.replace(line, f"{line}{after}").encode()}
    assert replay.replayed(plugin, changed, replays, Context("reference", PROFILES["quick"])) == same


def test_what_examples_do_beside_calls_cannot_be_replayed(tmp_path: Path) -> None:
    x = torch.ones(3)
    data = delegatekit.lower(Sum(), (x, x), backends=["reference"]).buffer
    path = tmp_path / "file.pte"
    path.write_bytes(data)
    with replay.keeping() as nothing:
        pass
    with replay.keeping() as elsewhere:
        delegatekit.load(path)["forward"].run((x, x))
    with replay.keeping() as session:
        delegatekit.load(data).new_session()["forward"].run((x, x))
    with replay.keeping() as many:
        method = delegatekit.load(data)["forward"]
        for _ in range(20):
            method.run((x, x))
    for found in (nothing, elsewhere, session, many):
        assert not found.write(tmp_path / "kept")


def test_attempts_with_other_results_come_first_and_those_with_the_same_not_at_all() -> None:
    known, other, same, late = (attempt("sums/double", number) for number in range(4))
    told = {other.name: False, same.name: True, late.name: False}
    assert replay.ordered([known, other, same, late], told) == [other, late, known]


FUNCTION = """
def f(b, x, low, high):
    if low < len(x.shape) and (high - 1) in x.shape:
        return b.emit(x, (low, high))
    (low, high) = high, low
    return [part for part in x if part]
    return sum(part for part in x if low)
    pairs = zip(x, x, strict=True)
    return any(left > right for left, right in pairs)
    becomes(low, high)
"""


@pytest.mark.parametrize(
    "line, before, after, expected",
    [
        (3, "high - 1", "high + 1", ("low < len(x.shape) and (high + 1) in x.shape", True)),
        (4, "x, (low, high)", "(low, high), x", None),  # the call builds
        (4, "low, high", "high, low", ("(high, low)", False)),
        (5, "low, high", "high, low", None),  # assigned to
        (6, "if part", "if not part", ("[part for part in x if not part]", False)),
        (7, "if low", "if not low", ("sum(part for part in x if not low)", False)),
        (9, "left > right", "left < right", ("left < right", False)),  # the pairs can be read once
        (10, "low, high", "high, low", None),  # the call is there for what it does
    ],
)
def test_the_widest_expression_that_changes_nothing_is_evaluated_twice(
    line: int, before: str, after: str, expected: tuple[str, bool] | None
) -> None:
    lines = FUNCTION.splitlines(keepends=True)
    start = len("".join(lines[: line - 1])) + lines[line - 1].index(before)
    found = infection.site(PythonSource(FUNCTION.encode()), start, before, after)
    assert (found and (found.after, found.truth)) == expected


def test_a_source_with_probes_is_the_same_program() -> None:
    places = []
    for number, change in enumerate(changes(FUNCTION.encode())):
        place = infection.site(
            PythonSource(FUNCTION.encode()), change.start, FUNCTION[change.start : change.end], change.after
        )
        if place is not None:
            places.append((number, place))
    space: dict[str, Any] = {}
    exec(infection.probed(FUNCTION.encode(), places), space)
    exec(FUNCTION, plain := {})

    class Builder:
        def emit(self, *values: Any) -> Any:
            return values

    with watching() as seen:
        for low, high in ((0, 4), (2, 4)):
            arguments = Builder(), torch.ones(3, 1), low, high
            assert space["f"](*arguments) == plain["f"](*arguments)
        assert any(seen.values()) and set(seen) < {number for number, _ in places}, "the last statement is not reached"


@pytest.mark.parametrize(
    ("other", "is_seen"),
    [
        (lambda: None, True),
        (lambda: int("a number"), True),
        (lambda: [].index(0), True),
        (lambda: int("no number"), False),
    ],
)
def test_what_a_guard_raises_is_its_value(other: Callable[[], Any], is_seen: bool) -> None:
    with watching() as seen, pytest.raises(ValueError, match="no number"):
        probe((3,), lambda: int("no number"), other)
    assert seen == {3: is_seen}


def test_values_differ_if_their_readers_can_tell() -> None:
    same = [(1.5, 1.5), (math.nan, math.nan), (torch.ones(2), torch.ones(2)), ([1, (2,)], [1, (2,)])]
    other = [(1, True), (torch.ones(2), torch.ones(2, 1)), (np.zeros(1), np.zeros(1, int)), (iter(()), iter(()))]
    assert [differs(*pair) for pair in same + other] == [False] * len(same) + [True] * len(other)


# -- judging


def test_the_overlay_has_one_file_changed_and_leaves_the_plugin_alone(toy: Plugin) -> None:
    with overlay(toy.folder, {"sums.py": b"changed"}) as folder:
        package = folder / mutant_cases.PACKAGE
        assert (package / "sums.py").read_bytes() == b"changed"
        assert (package / "__init__.py").resolve() == toy.folder / "__init__.py"
    assert not folder.exists()
    assert (toy.folder / "sums.py").read_text() == SUMS


def test_a_wrong_result_kills_and_the_examples_after_it_are_not_tried(toy: Plugin) -> None:
    found = judged(mutant(toy, "number", "2", "3"), *(attempt("sums/double", number) for number in (1, 7, 8)))
    assert (found.killed, found.case, found.example, found.tried) == (True, "sums/double", "7", 2)
    assert (found.verdict, found.detail) == ("wrong result", "21, not 14")


def test_a_mutant_that_no_example_notices_survives(toy: Plugin) -> None:
    found = judged(mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))"), attempt("sums/double", 5))
    assert (found.killed, found.tried, found.gave_up) == (False, 1, False)


def test_a_mutant_that_hangs_is_killed(toy: Plugin) -> None:
    found = judged(mutant(toy, "statement", "x -= 1", "pass"), attempt("sums/count_down", 4, limit=1.0))
    assert (found.killed, found.verdict) == (True, "timeout")


def test_a_mutant_that_cannot_be_imported_is_killed(toy: Plugin) -> None:
    broken = Mutant("sums.py", "number", 1, "", "", "", b"raise ImportError\n")
    found = judged(broken, attempt("sums/double", 1))
    assert (found.killed, found.verdict) == (True, "run error")


def test_processes_that_a_rule_starts_get_the_mutant(toy: Plugin) -> None:
    found = judged(mutant(toy, "number", "2", "3"), attempt("manners/elsewhere", "", verdict="passed"))
    assert found.killed
    assert found.detail.startswith("ValueError: 21 by ")
    assert str(toy.folder) not in found.detail


def test_a_fault_that_comes_without_the_change_kills_nothing(toy: Plugin) -> None:
    (toy.folder / "sums.py").write_text(SUMS.replace("return x * 2", "return x * 3"))
    other = mutant(Plugin.of("seeded"), "arithmetic", "x + 1", "((x) - (1))")
    found = judged(other, attempt("manners/elsewhere", "", verdict="passed"))
    assert not found.killed, "rules of manners are tried again without the change"


def test_more_work_for_the_same_operators_is_told(toy: Plugin) -> None:
    same = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    examples = [(name, attempt(f"sums/{name}", 4)) for name in ("double", "working")]
    tried = [replace(one, delegated_nodes=2, delegate_operators=2, delegate_bytes=8) for _, one in examples]
    found = judge(trial(same, *tried), CONTEXT, load("seeded"), mutant_cases.working)
    assert (found.killed, found.work, found.told) == (False, ("sums/working",), True)


def test_damage_that_is_no_longer_refused_is_told(toy: Plugin) -> None:
    same = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    tried = replace(attempt("sums/careful", 4), delegate_bytes=8, damages_refused=4)
    found = judge(trial(same, tried), CONTEXT, load("seeded"), mutant_cases.working)
    assert (found.killed, found.less, found.told) == (False, ("sums/careful",), True)


def test_an_operator_that_is_taken_apart_is_told(toy: Plugin) -> None:
    same = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    tried = replace(attempt("sums/careful", 4), delegated_nodes=1, damages_refused=3, taken=("aten.lstm.input",))
    found = judge(trial(same, tried), CONTEXT, load("seeded"), mutant_cases.working)
    assert (found.killed, found.work, found.told) == (False, ("sums/careful",), True)


def test_other_reasons_of_refusals_are_told(toy: Plugin) -> None:
    same = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    tried = replace(attempt("sums/careful", 4), delegated_nodes=2, delegate_bytes=8, delegate_operators=2)
    found = [
        judge(trial(same, replace(tried, reasons=reasons)), CONTEXT, load("seeded"), mutant_cases.working)
        for reasons in ((), numbers_of(["not today"]))
    ]
    assert [(one.killed, one.reasons) for one in found] == [(False, ()), (False, ("sums/careful",))]


def test_operators_that_are_told_otherwise_of_the_same_delegate_are_told(toy: Plugin) -> None:
    same = mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))")
    tried = replace(attempt("sums/careful", 4), delegated_nodes=2, delegate_bytes=8, delegate_operators=2)
    found = [
        judge(trial(same, replace(tried, insides=short(lines))), CONTEXT, load("seeded"), mutant_cases.working)
        for lines in (("5eed 1 add", "0dd 2 sub"), ("5eed 3 mul", "0dd 2 sub"), ("beef 3 mul",))
    ]
    assert [one.insides for one in found] == [(), ("sums/careful",), ()]


def test_what_the_backend_says_of_itself_otherwise_is_told_where_no_example_shows_it(toy: Plugin) -> None:
    source = toy.sources["__init__.py"].data
    other = Mutant("__init__.py", "text", 1, "", "", "", source.replace(b"a test backend", b"another backend"))
    found = judged(other, attempt("sums/double", 5))
    assert not found.killed
    assert found.said == ("backend: summary: a test backend -> another backend",)
    assert found.told
    silent = judged(mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))"), attempt("sums/double", 5))
    assert not silent.said


def test_what_is_told_is_tried_with_few_examples_more(toy: Plugin) -> None:
    source = toy.sources["__init__.py"].data
    other = Mutant("__init__.py", "text", 1, "", "", "", source.replace(b"a test backend", b"another backend"))
    found = judged(other, *(attempt("sums/double", number) for number in range(40)))
    assert (found.tried, found.possible, found.told, found.gave_up) == (30, 40, True, False)
    silent = judged(mutant(toy, "boundary", "x > LIMIT", "((x) >= (LIMIT))"), *[attempt("sums/double", 4)] * 40)
    assert silent.tried == 40


# -- a whole run


def run(**settings: Any) -> tuple[Score, list[str]]:
    told: list[str] = []
    values: dict[str, Any] = {"count": 4, "rooms": ("sums",)} | settings
    request = Request("seeded", **values)
    return Campaign(request, source=mutant_cases.in_this_process, tell=told.append).run(), told


def test_a_run_resumes_and_shards_are_parts_of_the_whole(toy: Plugin, tmp_path: Path) -> None:
    resume = tmp_path / "finished.jsonl"
    whole, told = run(resume=resume)
    assert len(whole.judged) == 4
    assert sum(line.lstrip()[:1].isdigit() and "sums.py" in line for line in told) == 4
    lines = resume.read_bytes().splitlines(keepends=True)
    resume.write_bytes(b"".join(lines[:3]) + lines[3][:20])
    again, told = run(resume=resume)
    assert sum("sums.py" in line for line in told) == 2, "the other two were finished"
    assert [entry.killed("quick") for entry in again.judged] == [entry.killed("quick") for entry in whole.judged]
    parts = [run(shard=(index, 2), resume=resume)[0] for index in (1, 2)]
    assert {entry.name for entry in merge(parts).judged} == {entry.name for entry in whole.judged}
    with pytest.raises(InputError, match="holds the mutants of another run: seed"):
        run(resume=resume, seed=1)


def test_statements_that_no_example_reaches_are_listed(toy: Plugin) -> None:
    campaign = Campaign(Request("seeded", select=("sums/count_down",)), source=mutant_cases.in_this_process)
    found = {(one.line, one.text) for one in campaign.unreached() if one.file == "sums.py"}
    lines = SUMS.splitlines()
    assert (6, lines[5].strip()) in found and (7, lines[6].strip()) in found
    assert not any(11 <= line <= 13 for line, _ in found), "those that the case reaches"
    assert not any(text.startswith('"') for _, text in found), "docstrings are none"


def test_what_survives_is_tried_with_a_later_profiles_examples(toy: Plugin) -> None:
    request = Request("seeded", count=100, rooms=("sums",), profile="default")
    score = Campaign(request, source=mutant_cases.with_more_in_default).run()
    entries = {(entry.text, entry.before, entry.after): entry for entry in score.judged}
    later = entries["return x * 2", "2", "3"]
    assert (later.killed("quick"), later.killed("default")) == (False, True)
    assert (later.found[-1].case, later.found[-1].example) == ("sums/double", "7")
    (unused,) = {entry.killed("default") for key, entry in entries.items() if key[0] == "return x + 1"}
    assert not unused, "an example that is faulty without the change kills nothing"
    early = entries["return x + x", "x + x", "((x) - (x))"]
    assert [found.profile for found in early.found] == ["quick"]


def test_what_the_quick_profiles_time_did_not_suffice_for_is_tried_by_a_later_one(toy: Plugin) -> None:
    request = Request("seeded", count=100, rooms=("sums",), profile="default")
    object.__setattr__(request, "seconds", 1e-6)  # less than a user may say
    score = Campaign(request, source=mutant_cases.with_one_that_finds_it_among_others).run()
    quick, default = next(entry for entry in score.judged if (entry.before, entry.after) == ("2", "3")).found
    assert (quick.tried, quick.possible, quick.gave_up) == (1, 2, True)
    assert (default.killed, default.case, default.tried) == (True, "strict/double", 1)


def test_cases_that_the_quick_profile_leaves_out_come_after_those_of_their_rooms(toy: Plugin) -> None:
    change = mutant(toy, "number", "5", "6")
    cases = {
        name: mutant_cases.Sum(name, mutant_cases.twice, (2, 7)) for name in ("sums/more", "sums/double", "far/off")
    }
    lines = {"sums.py": mask(*change.lines) | 1 << 4 | 1 << 5}
    example = Example("sums/double", 0, pack(2), 0.1, "correct, delegated", 1, 0, 1, lines=lines, tags={"room": "sums"})
    chosen, _ = Deeper(CONTEXT, cases, [example], Chooser(toy, [example])).attempts(change, 10.0)
    assert [(one.case, unpack(one.packed)) for one in chosen] == [
        ("sums/double", 2),
        ("sums/more", 2),
        ("sums/double", 7),
        ("sums/more", 7),
    ]


class Untouched(mutant_cases.Sum):
    """A case whose examples must not be drawn."""

    def examples(self, context: Context) -> Sequence[int]:
        """None."""
        raise AssertionError(f"{self.name} is drawn in vain")


def test_a_later_profiles_examples_are_drawn_as_far_as_time_goes(toy: Plugin) -> None:
    change = mutant(toy, "number", "5", "6")
    cases = {name: mutant_cases.Sum(name, mutant_cases.twice, (2, 7)) for name in ("sums/double", "sums/more")}
    cases["sums/third"] = Untouched("sums/third", mutant_cases.twice, (2, 7))
    lines = {"sums.py": mask(*change.lines)}
    example = Example("sums/double", 0, pack(2), 0.1, "correct, delegated", 1, 0, 1, lines=lines, tags={"room": "sums"})
    chosen, possible = Deeper(CONTEXT, cases, [example], Chooser(toy, [example])).attempts(change, 0.1)
    assert ([one.case for one in chosen], possible) == (["sums/double"], 5)


@pytest.mark.slow
def test_a_cluster_judges_as_this_machine_does(toy: Plugin) -> None:
    distributed = pytest.importorskip("distributed")
    here, _ = run(count=2)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, resources={"seeded": 1}, dashboard_address=None
    ) as cluster:
        there, told = run(count=2, scheduler=cluster.scheduler_address)
    assert [(entry.name, entry.killed("quick")) for entry in there.judged] == [
        (entry.name, entry.killed("quick")) for entry in here.judged
    ]
    assert sum("sums.py" in line for line in told) == 2


def test_marked_mutants_are_not_counted_and_a_mark_of_nothing_is_an_error(toy: Plugin) -> None:
    entry = '[[equivalent]]\nfile = "sums.py"\nline = "{}"\nbefore = "5"\nreason = "five times two is five plus five"\n'
    (toy.folder / equivalent.FILE).write_text(entry.format("LIMIT = 5"))
    campaign = Campaign(Request("seeded", count=100))
    assert campaign.mutants
    assert not any(mutant.text == "LIMIT = 5" for mutant in campaign.mutants)
    assert campaign.equivalent == 1
    (toy.folder / equivalent.FILE).write_text(entry.format("LIMIT = 4"))
    with pytest.raises(InputError, match=r"no change of sums.py makes .* of '5' in 'LIMIT = 4'"):
        _ = Campaign(Request("seeded")).mutants


@pytest.mark.parametrize("text", ["[", "a = 1", "[[equivalent]]\nfile = 1", "[[equivalent]]\nfile = 'a'"])
def test_a_wrong_file_of_marks_is_an_error(toy: Plugin, text: str) -> None:
    (toy.folder / equivalent.FILE).write_text(text)
    with pytest.raises(InputError, match=equivalent.FILE):
        equivalent.read(toy)


@pytest.mark.parametrize("wrong", [{"count": 0}, {"profile": "huge"}, {"shard": (3, 2)}, {"seconds": 0}])
def test_a_wrong_request_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Request("reference", **wrong)


# -- the page


def score(backend: str, *killed: bool, profiles: tuple[str, ...] = ("quick",)) -> Score:
    entries = tuple(
        Judged(
            str(i), "ir", "ir/a.py", i, "number", f"x = {i} | y", "1", "2", (Found(str(i), "quick", ok, possible=3),)
        )
        for i, ok in enumerate(killed)
    )
    return Score(backend, "1.2", "0.1.0", 0, profiles, entries)


def test_scores_are_read_as_written_and_anything_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "score.json"
    write(path, score("acme", True, False))
    assert read(path) == score("acme", True, False)
    path.write_text("{}")
    with pytest.raises(InputError, match="no score of mutants"):
        read(path)


def test_a_later_profile_counts_what_the_one_before_it_killed() -> None:
    quick, default = Found("a", "quick", killed=False), Found("a", "default", killed=True)
    entry = Judged("a", "ir", "ir/a.py", 1, "number", "", "1", "2", (quick, default))
    assert (entry.killed("quick"), entry.killed("default")) == (False, True)
    killed = Judged("b", "ir", "ir/a.py", 2, "number", "", "1", "2", (Found("b", "quick", killed=True),))
    both = Score("acme", "1", "1", 0, ("quick", "default"), (entry, killed))
    assert [both.rate(profile) for profile in both.profiles] == [Rate(1, 0, 2), Rate(2, 0, 2)]


def test_what_only_a_comparison_of_two_runs_tells_is_found_but_not_killed() -> None:
    lost = Found("a", "quick", killed=False, less=("operators/aten.add.Tensor/float32",))
    entry = Judged("a", "ir", "ir/a.py", 1, "number", "", "1", "2", (lost,))
    one = Score("acme", "1", "1", 0, ("quick",), (entry,))
    assert one.rate("quick") == Rate(0, 1, 1) and one.rate("quick").found == 1
    assert not one.survivors
    assert table(one)[-1] == "| all | 1 | 1 (100 %) | 0 | 1 |"
    for name in ("larger", "work", "said"):
        told = replace(lost, less=(), **{name: ("operators/aten.add.Tensor/float32",)})  # type: ignore[arg-type]
        assert replace(one, judged=(replace(entry, found=(told,)),)).rate("quick") == Rate(0, 1, 1)


def test_survivors_are_counted_by_why_they_survived() -> None:
    found = [{}, {"reaching": 3}, {"tried": 1, "possible": 2}, {"tried": 2, "possible": 2}, {"tried": 5, "possible": 5}]
    one = score("acme", *[False] * len(found))
    entries = [
        replace(entry, found=(Found(entry.name, "quick", killed=False, **more),))
        for entry, more in zip(one.judged, found, strict=True)
    ]
    assert (
        "5 survived: no example reaches 1; 1 have the same value in all examples that reach them; 1 ended at the limit "
        "of time; of 2 all examples were tried that may show them."
    ) in updated("", [replace(one, judged=tuple(entries))])


def test_the_page_keeps_the_seeded_faults_and_the_other_backends() -> None:
    page = updated("# Seeded faults\n\n| a | b |\n", [score("acme", True, True, False), score("zeta", True)])
    assert page.startswith("# Seeded faults\n\n| a | b |\n\n" + TITLE)
    assert "| all | 3 | 2 (67 %) |" in page
    assert "\n1 survived: no example reaches 0; " in page
    assert "Only the cases `models`." in updated("", [replace(score("acme", True), select=("models",))])
    assert "`ir/a.py:2`" in page
    assert "`x = 2 \\| y`" in page
    again = updated(page, [score("acme", True, True, True)])
    assert "| all | 3 | 3 (100 %) |" in again
    assert "`ir/a.py:2`" not in again
    assert again.count("### zeta") == again.count(TITLE) == 1
    assert updated(again, [score("acme", True, True, True)]) == again
