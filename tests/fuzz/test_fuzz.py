"""The readers of .pte and .ptd, fuzzed: real files damaged in many ways, and small files that ask for much.

A reader gives a program or one DelegateKitError: nothing else, no crash, no long wait, and no more memory than
`targets.ALLOWED` and 256 bytes for each byte of tables. `make fuzz` checks the same for any length of time.
"""

from __future__ import annotations

import pickle
import random
import signal
import subprocess
import sys
from pathlib import Path

import bombs
import delegates
import fuzz_structure
import mutations
import pytest
import seeds as seed_files
import structure
import targets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delegatekit as dk
from delegatekit.pte import read, read_ptd
from delegatekit_api import FormatError

Seeds = dict[str, seed_files.Seed]

QUICK = settings(max_examples=500, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = st.integers(0, 2**62)


@pytest.fixture(scope="module")
def seeds(stock_external: Path) -> Seeds:
    return seed_files.make(stock_external)


def test_the_undamaged_files_load_and_run(seeds: Seeds) -> None:
    for seed in seeds.values():
        program = targets.load(seed.program, seed.data)
        assert program is not None, seed.name
        if "delegated" not in seed.name and "xnnpack" not in seed.name:
            (method,) = targets.make_methods(program)
            targets.run(method, seed.inputs)
    assert len(seeds) == 11


def test_changed_tables_are_well_formed_files(seeds: Seeds) -> None:
    """Files of the table mutation are still read as tables; only the meaning is wrong, in some of them."""
    source = random.Random(0)
    outcomes = {"read": 0, "valid": 0}
    for _ in range(200):
        seed = seeds[source.choice(sorted(seeds))]
        data = mutations.change_tables(seed.program, [], source)
        try:
            read(data)
        except FormatError:
            continue
        outcomes["read"] += 1
        outcomes["valid"] += targets.load(data, seed.data) is not None
    assert outcomes["read"] > 150
    assert 10 < outcomes["valid"] < 100


def damaged_program_is_handled(number: int, seeds: Seeds) -> None:
    source = random.Random(number)
    seed = seeds[source.choice(sorted(seeds))]
    data = mutations.mutate(seed.program, [other.program for other in seeds.values()], source)

    def work() -> None:
        program = targets.load(data, seed.data)
        if program is not None:
            targets.make_methods(program)

    with targets.Memory() as memory:
        targets.load(data, seed.data)
    assert targets.is_within(2.0, work)
    assert memory.peak < targets.ALLOWED + targets.ALLOWED_PER_BYTE * len(data)


def damaged_data_is_handled(number: int, seeds: Seeds) -> None:
    source = random.Random(number)
    seed = source.choice([seeds[name] for name in sorted(seeds) if seeds[name].data])
    files = list(seed.data)
    place = source.randrange(len(files))
    files[place] = mutations.mutate(files[place], [data for other in seeds.values() for data in other.data], source)

    def work() -> None:
        targets.load_data(files[place])
        program = targets.load(seed.program, files)
        if program is not None:
            targets.make_methods(program)

    with targets.Memory() as memory:
        targets.load_data(files[place])
        targets.load(seed.program, files)
    assert targets.is_within(2.0, work)
    assert memory.peak < targets.ALLOWED + targets.ALLOWED_PER_BYTE * len(files[place])


def test_damaged_programs_give_an_error_or_a_program(seeds: Seeds) -> None:
    @QUICK
    @given(NUMBERS)
    def check(number: int) -> None:
        damaged_program_is_handled(number, seeds)

    check()


def test_damaged_data_files_give_an_error_or_data(seeds: Seeds) -> None:
    @QUICK
    @given(NUMBERS)
    def check(number: int) -> None:
        damaged_data_is_handled(number, seeds)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("handled", [damaged_program_is_handled, damaged_data_is_handled])
def test_many_damaged_files_give_an_error_or_a_result(handled: object, seeds: Seeds) -> None:
    @LONG
    @given(NUMBERS)
    def check(number: int) -> None:
        handled(number, seeds)  # type: ignore[operator]

    check()


@pytest.mark.parametrize("kind", ["program", "data"])
def test_arbitrary_bytes_behind_the_right_magic_are_refused(kind: str) -> None:
    head = b"\x30\0\0\0ET12eh00" if kind == "program" else b"\x38\0\0\0FT01FH01"

    @settings(QUICK, max_examples=300)
    @given(st.binary(min_size=52, max_size=300))
    def check(tail: bytes) -> None:
        with pytest.raises(FormatError):
            read(head + tail) if kind == "program" else read_ptd(head + tail)

    check()


@pytest.mark.parametrize(
    ("first", "count"), [(0, 1500), pytest.param(1_000_000, 60_000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_damaged_programs_that_load_run_without_a_crash(first: int, count: int, seeds: Seeds, tmp_path: Path) -> None:
    """On the runtime's own operators, in a process of its own, which dies with a signal if memory is misused."""
    (tmp_path / "seeds").write_bytes(pickle.dumps(seeds))
    script = Path(__file__).with_name("run_mutants.py")
    command = [sys.executable, str(script), str(tmp_path / "seeds"), str(first), str(count)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    last = result.stdout.splitlines()[-1] if result.stdout else ""
    died = signal.Signals(-result.returncode).name if result.returncode < 0 else result.returncode
    assert result.returncode == 0, f"{last}: {died}\n{result.stderr[-2000:]}"
    ran = int(last.split()[1])
    assert ran > count // 20


@pytest.mark.sweep
@pytest.mark.parametrize("name", bombs.BOMBS)
def test_a_small_file_that_asks_for_much_is_refused_or_handled_in_time_and_memory(name: str) -> None:
    small, large = bombs.BOMBS[name](1000), bombs.BOMBS[name](10_000 if "one_state" not in name else 1000)
    with targets.Memory() as memory:
        targets.load(small)
    tables = len(small) - sum(map(len, read(small).segments)) if name != "one_table_for_many_values" else len(small)
    assert memory.peak < (4 << 20) + targets.ALLOWED_PER_BYTE * tables
    # Quadratic work takes 8 seconds and more here; the honest file of the same size takes one.
    assert targets.is_within(4.0, lambda: targets.load(large))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one_list_in_many_calls", "lists of tensors unfold to far more"),
        ("one_table_for_many_values", "expands to far more data"),
        ("much_planned_memory", "the method needs .* bytes of memory or more"),
        ("many_large_outputs", "the method needs .* bytes of memory or more"),
    ],
)
def test_what_unfolds_too_far_is_refused_when_it_is_loaded(name: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        dk.load(bombs.BOMBS[name](2000))


@pytest.mark.parametrize("name", ["one_state_for_many_buffers", "one_unaligned_constant_for_many_values"])
def test_a_method_that_would_copy_far_more_than_its_file_has_is_refused(name: str) -> None:
    few = dk.load(bombs.BOMBS[name](10))
    few["forward"]
    many = dk.load(bombs.BOMBS[name](1000))
    with pytest.raises(FormatError, match="would copy"):
        many["forward"]


def test_the_honest_file_among_them_runs() -> None:
    assert dk.load(bombs.BOMBS["many_values"](100))["forward"].run([]) == []


@pytest.fixture(scope="module")
def material(seeds: Seeds, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the fuzzer by structure reads."""
    folder = tmp_path_factory.mktemp("material")
    (folder / "seeds").write_bytes(pickle.dumps(seeds))
    (folder / "delegates").write_bytes(pickle.dumps(delegates.make()))
    return folder


def test_damage_by_structure_never_takes_a_process_down(material: Path) -> None:
    """Some cases of each format are loaded and run; `make fuzz` tries any number."""
    counts = {
        "pte": 50,
        "ptd": 20,
        "bpte": 50,
        "etdump": 150,
        "measurements": 150,
        "xnnpack": 150,
        "vulkan": 100,
        "coreml": 100,
        "tosa": 30,
        "vela": 60,
        "reference": 100,
        "qnn": 30,
    }
    counts = {name: count for name, count in counts.items() if name in (*structure.FILES, *delegates.FORMATS)}
    tried, ran, findings = fuzz_structure.fuzz(material, counts, seconds=540)
    assert not findings, "\n".join(findings)
    assert tried == sum(counts.values())
    assert ran > tried // 30  # not all damage is refused: what is accepted runs


@pytest.mark.slow
@pytest.mark.parametrize("format_", [*structure.FILES, *delegates.FORMATS])
def test_much_damage_by_structure_never_takes_a_process_down(format_: str, material: Path) -> None:
    """20,000 cases of each format; of simulators' programs, each of which takes long, as many as an hour has."""
    count = 20_000
    tried, _, findings = fuzz_structure.fuzz(material, {format_: count}, seconds=3600, first=1_000_000)
    assert not findings, "\n".join(findings)
    assert tried > count // 20
