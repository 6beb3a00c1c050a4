"""Damaged blobs: a sound backend withstands them, and faults are distinguished."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit.plugins import LoadedBackend
from delegatekit_conformance.cases import robustness
from delegatekit_conformance.cases.damages import Balanced, byte_replaced, has_words, places
from delegatekit_conformance.cases.robustness import Damage, DamageCase
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("seeded", PROFILES["quick"])
SOURCE = Path(__file__).with_name("contract_backend.py").read_text()
CASES = {case.name.removeprefix("robustness/"): case for case in robustness.cases()}

INIT = "        return handle\n"
CHECKSUM = '        if zlib.crc32(blob[8:]).to_bytes(4, "little") != blob[4:8]:\n'
COUNTS = '        if len(plan["inputs"]) != len(payload.inputs) or len(plan["outputs"]) != len(payload.outputs):\n'
NAMED_CHECKSUM = '            if f"{zlib.crc32(data):08x}" != key:\n'

Install = Callable[..., None]

pytestmark = pytest.mark.usefixtures("quick_garbage_collection")


@pytest.fixture
def install(install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs the backend with parts of its source replaced."""

    def install(*changes: tuple[str, str]) -> None:
        source = SOURCE
        for old, new in changes:
            assert source.count(old) == 1
            source = source.replace(old, new)
        install_plugin("seeded", source)

    return install


def try_all(name: str, context: Context = CONTEXT) -> list[Outcome]:
    case = CASES[name]
    return [case.run(example, context) for example in case.examples(context)]


def found(outcomes: list[Outcome], verdict: Verdict) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.verdict is verdict]


#: The runtime is in a process of its own.
APART = ("        integrity_check=True,\n", "        integrity_check=True,\n        isolated_runtime=True,\n")

DAMAGES = ("truncated", "flipped", "named-data-truncated", "named-data-flipped")


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_backend_with_checksums_refuses_all_damage(install: Install, kind: str) -> None:
    install()
    outcomes = try_all(f"linear/{kind}")
    assert {outcome.verdict for outcome in outcomes} == {Verdict.PASSED}
    # Cutting off at the last byte or flipping a bit, whatever is left is never right.
    assert all("refused by init" in outcome.detail for outcome in outcomes)


def test_damage_that_the_backend_does_not_claim_to_notice_is_counted_apart(install: Install) -> None:
    install((NAMED_CHECKSUM, "            if False:\n"), ("        integrity_check=True,\n", ""))
    outcomes = try_all("linear/named-data-flipped")
    wrong = found(outcomes, Verdict.UNDETECTED)
    assert wrong
    assert "of 512 flipped: no error, and output 0" in "".join(outcome.detail for outcome in wrong)
    assert not any(outcome.verdict.is_fault for outcome in outcomes)
    assert {outcome.verdict for outcome in outcomes} <= {Verdict.UNDETECTED, Verdict.PASSED}


def test_data_that_ends_too_early_must_be_refused_whatever_the_backend_claims(install: Install) -> None:
    padded = "            data = data.ljust(4 * torch.Size(shape).numel())\n"
    install((NAMED_CHECKSUM, f"{padded}            if False:\n"), ("        integrity_check=True,\n", ""))
    outcomes = try_all("linear/named-data-truncated")
    wrong = found(outcomes, Verdict.VIOLATION)
    assert wrong
    assert "something else was read instead of what is missing" in wrong[0].detail
    assert not found(outcomes, Verdict.UNDETECTED)


def test_an_integrity_check_that_does_not_check_is_a_fault(install: Install) -> None:
    install((NAMED_CHECKSUM, "            if False:\n"))
    wrong = found(try_all("linear/named-data-flipped"), Verdict.VIOLATION)
    assert wrong
    assert "the backend says that it has an integrity check" in wrong[0].detail
    assert wrong[0].blame == "backend"


@pytest.mark.parametrize("kind", ["truncated", "flipped"])
def test_errors_outside_the_family_are_faults(install: Install, kind: str) -> None:
    install((CHECKSUM, "        if False:\n"))
    wrong = found(try_all(f"arithmetic/{kind}"), Verdict.VIOLATION)
    assert wrong
    assert any("raises JSONDecodeError" in outcome.detail for outcome in wrong)
    assert all(outcome.detail.partition(":")[0].startswith(("cut to", "bit ")) for outcome in wrong)


def test_what_is_told_of_a_damaged_blob_is_a_refusal_of_the_family_or_operators(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    case = next(case for case in robustness.cases() if case.name == "robustness/arithmetic/replaced")
    example = case.examples(CONTEXT)[0]
    assert case.run(example, CONTEXT).verdict in (Verdict.PASSED, Verdict.UNDETECTED)

    def confused(*_: object) -> None:
        raise KeyError("operators")

    monkeypatch.setattr(LoadedBackend, "blob_operators", confused)
    outcome = case.run(example, CONTEXT)
    assert outcome.verdict is Verdict.VIOLATION
    assert "blob_operators raises KeyError: 'operators', and no FormatError" in outcome.detail


@pytest.mark.slow
def test_a_runtime_apart_that_dies_of_damage_has_crashed_all_the_same(install: Install) -> None:
    install(APART, (CHECKSUM, CHECKSUM + "            os.abort()\n"))
    crashed = found(try_all("linear/truncated"), Verdict.CRASH)
    assert crashed
    assert "init: loading it ended the process of its runtime, which crashed (SIGABRT)" in crashed[0].detail


def test_a_handle_that_fails_to_execute_is_destroyed(install: Install) -> None:
    # The damaged blob gets through init and fails later.
    install(
        (CHECKSUM, "        if False:\n"),
        (
            "        plan = json.loads(blob[8:])\n",
            "        plan = json.loads(blob[8:].ljust(1)) if 0 else read(blob)\n",
        ),
        ("class Runtime:", READ + "\n\nclass Runtime:"),
        (COUNTS, "        if False:\n"),
        ("        handle.plan = None\n", "        handle.plan = None\n        DESTROYED.append(1)\n"),
    )
    outcomes = try_all("arithmetic/truncated")
    refused = [outcome for outcome in outcomes if "refused by execute" in outcome.detail]
    import delegatekit_seeded_plugin as plugin  # type: ignore[import-not-found]

    assert refused
    assert len(plugin.DESTROYED) >= len(refused)


READ = """
DESTROYED = []


class Lazy(dict):
    def __getitem__(self, key):
        raise ExecutionError("the plan is not readable", where="seeded")


def read(blob):
    try:
        return json.loads(blob[8:])
    except ValueError:
        return Lazy(constants={}, inputs=[], outputs=[], steps=[])
"""
READ = READ.replace(
    "raise ExecutionError", 'if key in ("constants", "sizes"):\n            return {}\n        raise ExecutionError'
)


def test_what_the_backend_does_not_take_is_not_applicable(install: Install) -> None:
    install(("        if name not in TAKEN:", '        if name != "aten.mul.Tensor":'))
    for name in ("convolution/truncated", "arithmetic/named-data-flipped"):
        assert {outcome.verdict for outcome in try_all(name)} == {Verdict.NOT_APPLICABLE}


def test_without_a_good_blob_there_is_nothing_to_damage(install: Install) -> None:
    install((INIT, "        raise KeyError('broken from the start')\n"))
    outcome = try_all("arithmetic/truncated")[0]
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "broken from the start" in outcome.detail


@pytest.mark.parametrize("program", robustness.PROGRAMS)
def test_the_reference_backend_withstands_all_damage(program: str) -> None:
    context = Context("reference", PROFILES["quick"])
    for kind in DAMAGES:
        for outcome in try_all(f"{program}/{kind}", context):
            assert not outcome.verdict.is_fault, outcome.detail


# Damages


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case, DamageCase)])
def test_damages_are_the_same_everywhere_and_favour_the_beginning(name: str) -> None:
    case = CASES[name]
    assert isinstance(case, DamageCase)
    context = Context("seeded")
    examples = case.examples(context)
    # The list does not need the backend: it is not installed here.
    assert examples == case.examples(context) == pickle.loads(pickle.dumps(examples))
    assert len(examples) == case.count(context)
    places = [example.place for example in examples]
    assert all(0 <= place <= 1 for place in places)
    assert len(set(places)) == len(places)
    assert sum(place < 0.25 for place in places) > len(places) * 0.35
    assert max(places) > 0.8
    assert [example.describe() for example in examples] != [
        example.describe() for example in case.examples(Context("seeded", seed=1))
    ]


def test_each_word_of_a_blob_gets_other_numbers_in_four_turns() -> None:
    data = struct.pack("<10I", *range(2, 12))
    parts = [list(robustness.Fields("arithmetic", part, 2, 0, 5).damages(data)) for part in (0, 1)]
    places = [
        [next(place for place in range(10) if blob[4 * place :][:4] != data[4 * place :][:4]) for blob, _ in part]
        for part in parts
    ]
    assert places == [[0, 2, 4, 6, 8] * 4, [1, 3, 5, 7, 9] * 4]
    assert all(len(blob) == len(data) for part in parts for blob, _ in part)
    names = [what.partition(" of 40 ")[2] for _, what in parts[0]]
    assert names[:3] == ["set to 0", "one more", "set to 2^31 - 1"]
    assert names[::5] == ["set to 0", "set to 2^31 - 1", "one less", "with 1 as its upper half"]
    nothing = list(robustness.Fields("arithmetic", 0, 1, 0, 5).damages(bytes(4)))
    assert [what.partition(" of 4 ")[2] for _, what in nothing] == [names[5], names[10], names[15]], (
        "0 is what was there"
    )


def test_words_that_are_alike_are_replaced_together() -> None:
    data = struct.pack("<8I", 9, 7, 3, 7, 1 << 20, 3, 7, 1 << 20) + b"end"
    damages = list(robustness.Alike("arithmetic", 0, 5).damages(data))
    blobs = [struct.unpack_from("<8I", blob) for blob, _ in damages]
    assert all(len(blob) == len(data) and blob.endswith(b"end") for blob, _ in damages)
    assert [blob[1] for blob in blobs] == [0, 6, 8, 1 << 16, 7, 7, 7, 7], "the 7 first: it stands in most places"
    assert [blob[2] for blob in blobs] == [3, 3, 3, 3, 0, 2, 4, 1 << 16]
    assert all(blob[1] == blob[3] == blob[6] and blob[2] == blob[5] and blob[0] == 9 for blob in blobs)
    assert damages[0][1] == "3 words, the first at byte 4 of 35, set to 0"
    assert len(list(robustness.Alike("arithmetic", 0, 1).damages(data))) == 4


def test_a_large_blob_sees_every_kind_of_number() -> None:
    damages = list(robustness.Fields("arithmetic", 1, 2, 0, 20).damages(struct.pack("<6375I", *range(2, 6377))))
    assert 60 <= len(damages) <= 80
    assert len({what.partition(" of 25500 ")[2] for _, what in damages}) == 10


def test_a_cut_always_takes_something_away() -> None:
    data = bytes(range(10))
    for place, length in ((0.0, 0), (0.55, 5), (1.0, 9)):
        assert Damage("linear", "truncated", place).apply(data) == (data[:length], f"cut to {length} of 10 bytes")


def test_a_flip_changes_one_bit() -> None:
    data = bytes(10)
    for place, byte, bit in ((0.0, 0, 0), (0.5, 5, 0), (0.2625, 2, 5), (1.0, 9, 7)):
        flipped, what = Damage("linear", "flipped", place).apply(data)
        assert [index for index in range(10) if flipped[index]] == [byte]
        assert flipped[byte] == 1 << bit
        assert what == f"bit {bit} of byte {byte} of 10 flipped"


@pytest.mark.parametrize("name", ["linear/flipped", "linear/named-data-truncated"])
def test_the_snippet_shows_the_same(install: Install, name: str) -> None:
    install()
    case = CASES[name]
    example = case.examples(CONTEXT)[-1]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(case.snippet(example, CONTEXT), {})
    assert case.run(example, CONTEXT).detail in printed.getvalue()


def test_words_of_an_operators_blob_are_replaced_at_random_and_each_pair_comes_once() -> None:
    data = bytes(range(1, 101))
    damages = [blob for blob, _ in robustness.Pairs("aten.add.Tensor", "float32", 100, 0).damages(data)]
    assert len(set(damages)) == len(damages) > 80
    assert damages != [blob for blob, _ in robustness.Pairs("aten.add.Tensor", "float32", 100, 1).damages(data)]
    assert len(list(robustness.Pairs("aten.add.Tensor", "float32", 9, 0).damages(data))) <= 9


@pytest.mark.parametrize("checks", [True, False])
def test_a_word_of_an_operators_blob_that_is_not_refused_is_found(install: Install, *, checks: bool) -> None:
    install(*(() if checks else [(CHECKSUM, "        if False:\n")]))
    case, context = robustness.OfOperator("aten.add.Tensor"), Context("seeded", PROFILES["default"])
    (example,) = case.examples(context)
    found = case.run(example, context)
    assert found.verdict is (Verdict.PASSED if checks else Verdict.VIOLATION), found.detail
    assert found.damages_refused == (200 if checks else 0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(case.snippet(example, context), {})
    assert printed.getvalue().count("bytes ") > 100


def test_blobs_of_operators_are_damaged_where_the_table_has_them_and_not_in_the_quick_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, context = robustness.OfOperator("aten.add.Tensor"), Context("reference")
    assert case.examples(context)
    assert not case.examples(Context("reference", PROFILES["quick"]))
    monkeypatch.setattr(robustness, "rows_of", lambda operator, context: [])
    assert not case.examples(context)


def test_a_format_without_words_has_single_bytes_and_digits_replaced() -> None:
    data = bytes((8, 6, 16, 1)) + b'{"padding": [1, 2]}' + bytes((200, 1)) * 20
    assert not has_words(data)
    assert has_words(struct.pack("<6I", 1, 2, 3, 4, 5, 1 << 30))
    first, second = (list(robustness.Fields("arithmetic", part, 2, 0, 99).damages(data)) for part in (0, 1))
    assert all(what.startswith("bytes ") for _, what in first), "the first part has words replaced"
    changed = {place for blob, _ in second for place in range(len(data)) if blob[place] != data[place]}
    assert all(sum(map(int.__ne__, blob, data)) == 1 for blob, _ in second)
    assert changed <= set(places(data))
    text = data.index(b"{")
    assert [place for place in places(data) if text <= place < text + 14] == [data.index(b"1, 2")], "no letters"
    digits = [next(byte_replaced(data, data.index(b"2]"), number))[0] for number in range(5)]
    assert [chr(blob[data.index(b"2]")]) for blob in digits] == ["0", "3", "9", "1", "1"]


def test_bytes_that_are_alike_after_the_same_byte_are_replaced_together() -> None:
    data = bytes((8, 6, 9, 6, 8, 6, 200, 199)) * 3
    blobs = [blob for blob, _ in robustness.Alike("arithmetic", 0, 1).damages(data)]
    assert [blob[1] for blob in blobs] == [0, 7, 127, 5, 1]
    assert all(blob[1] == blob[5] == blob[-3] and blob[3] == 6 for blob in blobs)


def test_of_neighbors_one_becomes_more_and_the_other_less() -> None:
    words = struct.pack("<4I", 0, 3, 1 << 20, 7)
    found = [struct.unpack("<4I", blob) for blob, _ in Balanced("arithmetic", 0, 9).damages(words)]
    assert found == [(1, 2, 1 << 20, 7), (0xFFFFFFFF, 4, 1 << 20, 7)]
    data = bytes((18, 4, 1, 2, 0, 250)) + b"[4,5]" + bytes((250,)) * 9
    pairs = [
        tuple(place for place in range(len(data)) if blob[place] != data[place])
        for blob, _ in Balanced("arithmetic", 0, 99).damages(data)
    ]
    assert pairs[::2] == pairs[1::2] == [(0, 1), (1, 2), (2, 3), (7, 9)], "nothing becomes less than 0"
    assert all(sum(blob) == sum(data) for blob, _ in Balanced("arithmetic", 0, 99).damages(data))
