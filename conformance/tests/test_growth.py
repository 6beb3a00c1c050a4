"""Cost that grows: a sound backend's needs settle, and growth is reported with its rate and cause."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegatekit_conformance.cases import specimens
from delegatekit_conformance.cases.growth import GrowthCase, gpu
from delegatekit_conformance.cases.growth.fit import goes_on, last, line
from delegatekit_conformance.cases.growth.histories import HISTORIES
from delegatekit_conformance.cases.growth.lowerings import LoweringsCase, growing
from delegatekit_conformance.cases.growth.meters import bytecodes, seconds
from delegatekit_conformance.cases.growth.series import History, TooSlow, growth
from delegatekit_conformance.cases.kinds import Kind
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("seeded", PROFILES["quick"])
SOURCE = Path(__file__).with_name("contract_backend.py").read_text()

INIT = "        return handle\n"
EXECUTE = "        values = dict(handle.constants)\n"
RETURN = "    return PreprocessResult(blob, specs, tuple(named.values()), handles, ESTIMATE)\n"
#: The runtime is in a process of its own.
APART = ("        integrity_check=True,\n", "        integrity_check=True,\n        isolated_runtime=True,\n")

Install = Callable[..., None]

pytestmark = pytest.mark.usefixtures("quick_garbage_collection")


@pytest.fixture(autouse=True)
def _few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {name: specimens.SPECIMENS[name] for name in ("arithmetic", "linear")}
    monkeypatch.setattr(specimens, "SPECIMENS", programs)


@pytest.fixture
def install(install_plugin: Callable[..., Path]) -> Install:
    """Installs the backend with parts of its source replaced."""

    def install(*changes: tuple[str, str]) -> None:
        source = SOURCE
        for old, new in changes:
            assert source.count(old) == 1
            source = source.replace(old, new)
        install_plugin("seeded", source)

    return install


def repeat(name: str, context: Context = CONTEXT) -> Outcome:
    case = GrowthCase(name)
    (example,) = case.examples(context)
    return case.run(example, context)


def grown(act: Callable[[int], None], seconds: float = 0.3, **more: object) -> str:
    """The report of the series on an action; empty if there is none."""
    found, _ = growth(History("call", {"it": act}, **more), seconds, 10.0)  # type: ignore[arg-type]
    return found.detail if found else ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", HISTORIES)
def test_a_sound_backend_needs_no_more_than_at_first(install: Install, name: str) -> None:
    install()
    outcome = repeat(name)
    assert outcome.verdict is Verdict.PASSED, outcome.detail


def test_a_sound_lowering_leaves_nothing_behind(install: Install) -> None:
    install()
    outcomes = [LoweringsCase().run(example, CONTEXT) for example in (Kind("elementwise"), Kind("running-sum"))]
    assert [outcome.verdict for outcome in outcomes] == [Verdict.PASSED] * 2, outcomes


def test_programs_that_stay_after_lowering_are_found(install: Install) -> None:
    install((RETURN, "    KEPT.append(partition)\n" + RETURN))
    outcome = LoweringsCase().run(Kind("elementwise"), CONTEXT)
    assert outcome.verdict is Verdict.VIOLATION
    assert "torch.fx.graph.Graph" in outcome.detail


@pytest.mark.slow
def test_what_the_suite_leaves_behind_itself_is_not_the_backends() -> None:
    kept: list[object] = []
    # Far more than other threads of the tests' process make meanwhile.
    act = lambda _: kept.extend(object() for _ in range(50))  # noqa: E731
    assert "Python objects" in grown(act, control=lambda _: None)
    assert grown(act, control=act) == ""


def test_what_a_cache_holds_is_not_growth() -> None:
    held: list[object] = []

    def unit() -> None:
        held.append(object())
        del held[:-50]

    assert growing(unit, lambda: {"objects": len(held)}, 6, 1.0)[0] == {}
    kept: list[object] = []
    found, units = growing(lambda: kept.append(object()), lambda: {"objects": len(kept)}, 6, 1.0)
    assert found == {"objects": 1}
    assert units == len(kept)


#: History -> a line that is put before one of the backend's, and a word of the report.
LEAKS = [
    ("calls", EXECUTE, "        KEPT.append(bytearray(2048))\n", "bytes of native memory"),
    ("sizes", EXECUTE, "        KEPT.append((inputs[0].shape, bytes(3000)))\n", "a size"),
    ("sessions", INIT, "        KEPT.extend([object(), object()])\n", "Python objects"),
    ("sessions", INIT, "        KEPT.append(open(os.devnull))\n", "open files"),
    (
        "sessions",
        INIT,
        "        import threading; threading.Thread(target=threading.Event().wait, args=(60,), daemon=True).start()\n",
        "threads",
    ),
    ("sessions", INIT, "        import tempfile; tempfile.mkstemp()\n", "temporary files|open files"),
    ("loads", INIT, "        KEPT.append(bytes(blob) + bytes(600))\n", "a load"),
    (
        "sessions-alive",
        EXECUTE,
        "        KEPT.append(handle) if all(handle is not other for other in KEPT) else None\n",
        "costs more the more there were before",
    ),
    ("compilations", RETURN, "    KEPT.append(bytearray(b'x' * 65536))\n", "a compilation"),
    ("programs", RETURN, "    KEPT.append(bytearray(b'x' * 6000))\n", "each program"),
    (
        "refusals",
        "            raise FormatError('not a blob of this backend', where='offset 0')\n".replace("'", '"'),
        "            KEPT.append(bytes(2000))\n",
        "a refusal",
    ),
]


#: Leaks of each kind of history whose measurement takes a second or two.
SHORT = ("calls-0", "sizes-1", "sessions-2", "refusals-10")


def leaks() -> list[Any]:
    """All leaks with a name each; the long ones are slow tests."""
    names = [f"{leak[0]}-{number}" for number, leak in enumerate(LEAKS)]
    marks = [() if name in SHORT else (pytest.mark.slow,) for name in names]
    return [pytest.param(*leak, id=name, marks=mark) for leak, name, mark in zip(LEAKS, names, marks, strict=True)]


@pytest.mark.parametrize(("name", "old", "leak", "word"), leaks())
def test_what_grows_is_found(install: Install, name: str, old: str, leak: str, word: str) -> None:
    install((old, leak + old))
    outcome = repeat(name)
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert any(part in outcome.detail for part in word.split("|")), outcome.detail
    assert outcome.blame == "backend"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not report a process' memory in the same way")
def test_leaks_of_a_runtime_apart_are_found(install: Install) -> None:
    install(APART, (EXECUTE, "        KEPT.append(os.urandom(1) * 20_000)\n" + EXECUTE))
    outcome = repeat("calls")
    assert outcome.verdict is Verdict.VIOLATION, outcome.detail
    assert "child processes' private memory" in outcome.detail


@pytest.mark.slow
def test_the_line_that_allocates_is_named(install: Install) -> None:
    install((EXECUTE, "        KEPT.append([1, 2])\n" + EXECUTE))
    detail = repeat("calls").detail
    assert "by program: arithmetic 2" in detail
    assert "made in delegatekit_seeded_plugin.py:" in detail


def test_a_cache_with_a_bound_is_no_leak() -> None:
    cache: dict[int, bytearray] = {}

    def act(number: int) -> None:
        cache[number] = bytearray(3000)
        if len(cache) > 1000:
            del cache[next(iter(cache))]

    assert not grown(act, most=20_000)


def test_memory_that_is_taken_once_is_no_leak() -> None:
    kept: list[bytearray] = []
    assert not grown(lambda number: kept.append(bytearray(1 << 22)) if number == 400 else None, most=2000)


def test_what_is_given_back_once_hides_no_leak() -> None:
    old, kept = [object() for _ in range(5000)], []

    def act(number: int) -> None:
        kept.append(bytearray(900))
        if number == 300:
            old.clear()

    assert "native memory" in grown(act, most=4000)


def test_handles_that_run_out_are_found(install: Install) -> None:
    install((INIT, "        KEPT.append(1)\n        if len(KEPT) > 90: raise MemoryError('no more handles')\n" + INIT))
    outcome = repeat("sessions")
    assert outcome.verdict is Verdict.VIOLATION
    assert "fails after some sessions: MemoryError: no more handles" in outcome.detail


def test_results_that_change_after_many_calls_are_found(install: Install) -> None:
    wrong = "        KEPT.append(1)\n        if len(KEPT) > 60: inputs = [item + 1 for item in inputs]\n"
    install((EXECUTE, wrong.replace("KEPT.append(1)", "KEPT.append(1) if len(KEPT) < 99 else None") + EXECUTE))
    outcome = repeat("calls")
    assert outcome.verdict is Verdict.VIOLATION
    assert "after many calls with other numbers" in outcome.detail


def test_what_is_too_slow_says_so() -> None:
    def act(_: int) -> None:
        sum(range(300_000))

    with pytest.raises(TooSlow, match="a call takes"):
        growth(History("call", {"it": act}), 0.001, 1.0)


def test_processes_that_have_ended_count() -> None:
    def busy(_: int) -> None:
        subprocess.run([sys.executable, "-S", "-c", "sum(range(10**6))"], check=True)

    before, own = seconds(), time.process_time()
    busy(0)
    assert seconds() - before > 0.01 + time.process_time() - own
    with pytest.raises(TooSlow):
        growth(History("session", {"it": busy}), 0.1, 0.3)


def test_time_that_grows_in_native_code_is_found() -> None:
    known: list[tuple[str, int]] = []

    def act(number: int) -> None:
        known.append(("key", number))
        known.count(("key", -1))  # once: thousands of units must fit into the time, also on a busy machine

    assert "costs more the more there were before" in grown(act, keeps=True, most=8000)


def test_the_snippet_repeats_the_same(install: Install) -> None:
    install()
    case = GrowthCase("sessions-alive")
    (example,) = case.examples(CONTEXT)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(case.snippet(example, CONTEXT), {})
    assert "Verdict.PASSED" in printed.getvalue()


# Fits


def test_a_line_does_not_bend_for_one_wild_point() -> None:
    points = [(float(x), 3.0 * x + 5) for x in range(9)]
    assert line(points).slope == 3.0
    points[4] = (4.0, 1e9)
    assert line(points).slope == pytest.approx(3.0)
    assert line(points).steady


def test_what_settles_does_not_go_on() -> None:
    filling = [(float(x), float(min(x, 60))) for x in range(0, 80, 10)]
    after = [(float(x), 60.0) for x in range(80, 320, 30)]
    assert not goes_on(line(filling), line(last(after)))
    assert goes_on(line(filling), line([(x, x) for x, _ in after]))


def test_instructions_are_counted_whatever_else_runs() -> None:
    def work(rounds: int) -> None:
        for _ in range(rounds):
            pass

    few, more, most = (bytecodes(lambda rounds=rounds: work(rounds)) for rounds in (10, 20, 30))
    if few:  # zero where another tracer is at work
        assert more - few == most - more > 0


def test_a_process_without_a_gpu_is_told_no_gpu_memory() -> None:
    assert gpu.used() in (None, 0) or gpu.used() > 0  # type: ignore[operator]
