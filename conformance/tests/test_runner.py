"""The runner survives any worker and loses no verdict. The cases are toys whose faults are exactly the ones named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from delegatekit_api import DelegateKitError
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import CaseResult, Verdict
from delegatekit_conformance.runner import Limits, Pool, select, shard
from delegatekit_conformance.runner.journal import Diary, Finished, Progress

Toys = Callable[..., Pool]
CONTEXT = Context("any", replace(PROFILES["quick"], shrink_seconds=3.0), timeout=1.5)


@pytest.fixture
def toys(toy_folder: Path) -> Iterator[Toys]:
    """Makes pools whose cases are toys."""
    from toy_cases import cases  # type: ignore[import-not-found]

    pools = []

    def make(context: Context = CONTEXT, **settings: object) -> Pool:
        pools.append(Pool(context, source=cases, **settings))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def gone(process: int) -> bool:
    """True if a process has ended (a zombie, too, has ended)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def children(folder: Path) -> list[tuple[str, int]]:
    """The number of the example and the process of each that the case `toys/child` started."""
    lines = [line.partition(":") for line in (folder / "child").read_text().split()]
    return [(number, int(process)) for number, _, process in lines]


def counts(result: CaseResult) -> dict[str, int]:
    return {verdict.name: count for verdict, count in result.counts.items()}


def test_a_crash_is_the_verdict_of_one_example_and_the_case_goes_on(toys: Toys) -> None:
    result = toys().run_case("toys/abort")
    assert counts(result) == {"DELEGATED": 4, "CRASH": 1}
    (fault,) = result.faults
    assert "signal SIGABRT in _abort (toy_cases.py:" in fault.detail
    assert fault.detail.endswith("the last words") and len(fault.detail) < 1000
    assert (fault.example, fault.snippet, fault.blame) == ("2", "try_number(2)", "backend")
    assert fault.shrunk, "smaller ones were tried, and none crashes"


def test_how_a_process_ends_is_told(toys: Toys) -> None:
    results = {result.case: result for result in toys(jobs=2).run(["toys/segfault", "toys/exit", "toys/raise"])}
    details = {name: result.faults[0].detail for name, result in results.items()}
    assert "signal SIGSEGV in string_at" in details["toys/segfault"]
    assert "exit status 3" in details["toys/exit"]
    assert "SystemExit: enough" in details["toys/raise"]
    assert [counts(result) for result in results.values()] == [{"DELEGATED": 4, "CRASH": 1}] * 3


def test_a_worker_that_ends_with_status_0_is_noticed(toys: Toys) -> None:
    result = toys().run_case("toys/silent")
    assert counts(result) == {"DELEGATED": 4, "CRASH": 1}
    assert "exit status 0" in result.faults[0].detail


def test_what_sleeps_too_long_ends_with_a_traceback(toys: Toys) -> None:
    pool = toys(replace(CONTEXT, timeout=1.5), limits=Limits(patience=2.0))
    result = pool.run_case("toys/hang")
    assert counts(result) == {"DELEGATED": 4, "TIMEOUT": 1}
    assert "timed out after 3 s in " in result.faults[0].detail and "toy_cases.py" in result.faults[0].detail


def test_what_sleeps_and_uses_no_cpu_time_is_not_waited_for_long(toys: Toys) -> None:
    result = toys(replace(CONTEXT, timeout=1.0), limits=Limits(patience=1000.0)).run_case("toys/hang")
    assert counts(result) == {"DELEGATED": 4, "TIMEOUT": 1}
    assert "timed out after 1 s, the last of them without any CPU use in " in result.faults[0].detail
    assert "toy_cases.py" in result.faults[0].detail


def test_what_uses_too_much_cpu_time_ends_with_a_traceback(toys: Toys) -> None:
    context = replace(CONTEXT, timeout=0.5, profile=replace(CONTEXT.profile, shrink_seconds=1.0))
    result = toys(context, limits=Limits(patience=1000.0)).run_case("toys/spin")
    assert counts(result) == {"DELEGATED": 4, "TIMEOUT": 1}
    assert "timed out after 0.5 CPU seconds in _spin (toy_cases.py" in result.faults[0].detail
    assert result.faults[0].shrunk


def test_a_time_limit_is_no_fault_if_the_example_ends_when_it_is_repeated(toys: Toys, toy_folder: Path) -> None:
    result = toys(replace(CONTEXT, timeout=0.5)).run_case("toys/late")
    assert (toy_folder / "late").exists()
    assert counts(result) == {"DELEGATED": 3} and not result.faults


def test_the_stock_runtimes_process_is_there_before_examples_are_made(toys: Toys) -> None:
    """Making them may ask the backend, and a process that is forked from one with an open device cannot open it."""
    pytest.importorskip("executorch")
    assert counts(toys().run_case("toys/asks")) == {"DELEGATED": 5}


def test_after_some_crashes_the_rest_is_not_tried_and_that_is_told(toys: Toys) -> None:
    result = toys().run_case("toys/fatal")
    assert counts(result) == {"CRASH": 3}
    assert result.detail == "4 of 7 examples were not tried after 3 crashes or hangs"


def test_further_examples_are_tried_unless_the_first_settle_the_case(toys: Toys) -> None:
    pool = toys()
    assert counts(pool.run_case("toys/settled")) == {"DELEGATED": 5}
    result = pool.run_case("toys/further")
    assert counts(result) == {"DELEGATED": 2, "MISMATCH": 4}
    assert result.faults[0].shrunk


@pytest.mark.parametrize("name", ["toys/further crash", "toys/crash before further"])
def test_further_examples_are_tried_after_a_crash(toys: Toys, name: str) -> None:
    result = toys().run_case(name)
    assert counts(result) == {"DELEGATED": 4, "CRASH": 1} and not result.detail
    assert result.faults[0].shrunk


def test_ordinary_faults_shrink_in_the_worker_also_after_a_crash(toys: Toys) -> None:
    pool = toys()
    (fault,) = pool.run_case("toys/mismatch").faults
    assert (fault.example, fault.detail, fault.shrunk, fault.snippet) == ("2", "2 is wrong", True, "try_number(2)")
    result = pool.run_case("toys/both")
    assert counts(result) == {"DELEGATED": 2, "MISMATCH": 2, "CRASH": 1}
    assert {fault.verdict: fault.example for fault in result.faults} == {Verdict.MISMATCH: "2", Verdict.CRASH: "4"}
    assert all(fault.shrunk for fault in result.faults)


def test_a_crash_that_does_not_come_again_is_told_so(toys: Toys) -> None:
    result = toys().run_case("toys/once")
    assert counts(result) == {"DELEGATED": 4, "CRASH": 1}
    assert result.faults[0].detail.endswith("(not so when it is tried alone)")


def test_a_smaller_example_that_crashes_is_found_and_tried_again(toys: Toys) -> None:
    result = toys().run_case("toys/down")
    (fault,) = result.faults
    assert counts(result) == {"CRASH": 1}
    assert (fault.example, fault.snippet, fault.shrunk) == ("2", "try_number(2)", True)
    assert "exit status 12" in fault.detail, "the detail is that of the smaller example"


def test_a_case_that_cannot_begin_has_a_verdict(toys: Toys) -> None:
    pool = toys()
    crashed = pool.run_case("toys/draw")
    assert counts(crashed) == {"CRASH": 1}
    assert crashed.faults[0].detail.startswith("before the first example, the process ended with exit status 9")
    failed = pool.run_case("toys/no examples")
    assert counts(failed) == {"RUN_ERROR": 1}
    assert "ValueError: nothing to draw from" in failed.faults[0].detail


def test_jobs_run_at_the_same_time(toys: Toys) -> None:
    # Each waits for the other one: alone, neither would end.
    results = list(toys(replace(CONTEXT, timeout=30), jobs=2).run(["pair/a", "pair/b"]))
    assert [counts(result) for result in results] == [{"DELEGATED": 1}] * 2


def test_workers_stay_and_are_replaced_after_some_cases(toys: Toys, toy_folder: Path) -> None:
    pool = toys(limits=Limits(recycle=4))
    results = list(pool.run(select(pool.cases, ["many"])))
    assert len(results) == 12
    processes = (toy_folder / "counted").read_text().split()
    assert sorted(processes.count(process) for process in set(processes)) == [4, 4, 4]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_memory_has_a_limit(toys: Toys) -> None:
    assert counts(toys(limits=Limits(memory=1 << 30)).run_case("toys/grow")) == {"RUN_ERROR": 1}
    assert counts(toys(limits=Limits(memory=None)).run_case("toys/grow")) == {"DELEGATED": 1}


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see whether a process has ended")
def test_what_a_worker_started_ends_with_it(toys: Toys, toy_folder: Path) -> None:
    context = replace(CONTEXT, timeout=0.7, profile=replace(CONTEXT.profile, shrink_seconds=1.0))
    pool = toys(context, limits=Limits(patience=4.0))
    assert counts(pool.run_case("toys/child")) == {"TIMEOUT": 1, "DELEGATED": 1}
    started = children(toy_folder)
    hung = [process for number, process in started if number == "0"]
    assert len(hung) >= 2, "an example that is late is tried again"
    for process in hung:
        assert wait_until(lambda process=process: gone(process))  # type: ignore[misc]
    (second,) = (process for number, process in started if number == "1")
    assert not gone(second), "its worker is alive"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see whether a process has ended")
def test_closing_the_run_ends_its_workers(toys: Toys, toy_folder: Path) -> None:
    pool = toys(replace(CONTEXT, timeout=600), jobs=2)
    running = pool.run(["toys/long", "toys/sound", "toys/abort"])
    assert next(running).case == "toys/sound"
    assert wait_until((toy_folder / "long").exists)
    start = time.monotonic()
    running.close()  # type: ignore[attr-defined]
    pool.close()
    assert time.monotonic() - start < 10
    assert wait_until(lambda: gone(int((toy_folder / "worker").read_text())))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see whether a process has ended")
def test_workers_and_their_children_end_with_a_killed_supervisor(toy_folder: Path) -> None:
    code = (
        "from toy_cases import cases\nfrom delegatekit_conformance.runner import Pool\n"
        "from delegatekit_conformance.context import Context\n"
        "if __name__ == '__main__': Pool(Context('any', timeout=600), source=cases).run_case('toys/child')"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code])
    try:
        assert wait_until((toy_folder / "worker").exists, 60.0)
    finally:
        supervisor.kill()
        supervisor.wait()
    ((_, child),) = children(toy_folder)
    for process in (int((toy_folder / "worker").read_text()), child):
        assert wait_until(lambda process=process: gone(process))  # type: ignore[misc]


def test_selection_takes_patterns_and_leading_parts() -> None:
    names = ["contract/bytes", "operators/aten.add.Tensor/float32", "operators/aten.add.Tensor/int8", "models/vit"]
    assert select(names, []) == names
    assert select(names, ["contract", "models/"]) == [names[0], names[3]]
    assert select(names, ["operators/aten.add.Tensor"]) == names[1:3]
    assert select(names, ["*/float32", "models/*"]) == [names[1], names[3]]
    assert select(names, ["Contract"]) == select(names, ["contr"]) == []


def test_shards_are_all_cases_once_even_and_stable(toys: Toys) -> None:
    cases = dict(toys().cases)
    names = list(cases)
    shards = [shard(cases, names, index, 3) for index in (1, 2, 3)]
    assert sorted(name for part in shards for name in part) == sorted(names)
    costs = [sum(cases[name].cost for name in part) for part in shards]
    assert max(costs) <= 1.1 * sum(costs) / 3 + 1
    fewer = [name for name in names if name != "toys/abort"]
    moved = sum(len(set(shard(cases, fewer, index, 3)) - set(shards[index - 1])) for index in (1, 2, 3))
    assert moved <= len(names) // 4
    assert shard(cases, names, 1, 1) == names


def test_the_same_seed_gives_the_same_verdicts(toys: Toys) -> None:
    names = ["toys/abort", "toys/mismatch", "toys/both", "toys/sound"]
    first, second = (
        {result.case: (result.counts, [fault.example for fault in result.faults]) for result in toys(jobs=2).run(names)}
        for _ in range(2)
    )
    assert first == second


def test_a_diary_is_read_on_and_survives_a_cut_line(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    progress = Progress(path)
    assert progress.read().count is None
    diary = Diary(path)
    diary.write("started", process=7, limit=5)
    diary.write("examples", count=2, complete=True)
    diary.write("begin", index=0, example="x", limit=9)
    assert (progress.read().count, progress.open, progress.example, progress.limit) == (2, 0, "x", 9)
    diary.close()
    with path.open("a") as file:
        file.write('{"event": "outc')
    assert progress.read().open == 0
    Diary(path).write("outcome", index=0, outcome={"verdict": "crash"}, died=True)
    assert progress.read().outcomes[0].verdict is Verdict.CRASH
    assert (progress.open, progress.deaths) == (None, {0})


def test_finished_cases_are_kept_and_only_for_the_same_run(tmp_path: Path) -> None:
    path = tmp_path / "finished"
    result = CaseResult("room/case", {"room": "room"}, {Verdict.PASSED: 1})
    finished = Finished(path, CONTEXT, "pytest")
    finished.add(result)
    finished.close()
    with path.open("a") as file:
        file.write('{"case": "cut of')
    again = Finished(path, CONTEXT, "pytest")
    assert again.results == {"room/case": result}
    again.add(replace(result, case="room/other"))
    again.close()
    assert set(Finished(path, CONTEXT, "pytest").results) == {"room/case", "room/other"}
    with pytest.raises(DelegateKitError, match="another run: seed is 0 there and 1 here"):
        Finished(path, replace(CONTEXT, seed=1), "pytest")
    path.write_text("[1]\n")
    with pytest.raises(DelegateKitError, match="line 1 is not one"):
        Finished(path, CONTEXT, "pytest")
    path.write_text("a picture")
    with pytest.raises(DelegateKitError, match="is not a file of finished"):
        Finished(path, CONTEXT, "pytest")


def test_a_killed_worker_costs_one_verdict_and_no_other(toys: Toys, toy_folder: Path) -> None:
    pool = toys(replace(CONTEXT, timeout=60))
    running = pool.run(["steady/0", "steady/1"])

    def kill() -> None:
        assert wait_until(lambda: len((toy_folder / "begun").read_text().split()) >= 2)
        os.kill(int((toy_folder / "worker").read_text()), signal.SIGKILL)

    (toy_folder / "begun").touch()
    with ThreadPoolExecutor(1) as threads:
        killed = threads.submit(kill)
        results = list(running)
        killed.result()
    assert [result.examples for result in results] == [4, 4]
    killed_case, other = sorted(results, key=lambda result: "CRASH" not in counts(result))
    assert [counts(killed_case), counts(other)] == [{"DELEGATED": 3, "CRASH": 1}, {"DELEGATED": 4}]
    assert "signal SIGKILL" in killed_case.faults[0].detail
