"""The work of a worker process: tries the examples of one case after the other and writes a diary.

The backend under test may crash or hang the process at any point; the supervisor (`pool`) draws the conclusion from the
diary. Nothing heavy is imported before a worker has its limits.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from delegatekit.plugins import COMPILED, discovery
from delegatekit_toolkit.accuracy.script import with_bound

from .. import stock
from ..cases import Case
from ..context import Context
from ..outcome import Outcome, Tally, Verdict
from .idle import Idle
from .journal import Diary, Progress
from .plan import Job, Limits, Source, limit_of

#: CPU seconds for what comes before the first example: imports, and drawing the examples.
PREPARATION = 120.0
#: Seconds between two looks at a child that tries a smaller example.
_POLL = 0.005
#: Exit code of a child whose smaller example neither crashed nor hung.
_SURVIVED = 77
#: A hang is believed after this part of the time for shrinking, while smaller examples are sought; the smallest is then
#: tried again with the whole time limit.
_PATIENCE = 1 / 3

#: The context that this worker was made for, and the file that faulthandler writes to (it must stay open).
_context: Context
_source: Source
_limits: Limits
_trace: IO[str] | None = None
_cases: Mapping[str, Case] | None = None
#: A partitioner with the options under test; False if there is none.
_partitioner: object = None
#: The end of the pipe that tells this worker's guard that it is alive.
_alive: int | None = None


def prepare(
    context: Context, limits: Limits, supervisor: Connection | None, source: Source, environment: Mapping[str, str]
) -> None:
    """Make this process a worker. `supervisor` reaches its end when the process that started it has died.

    `environment` has the environment variables of that process: those of a forked process are the server's.
    """
    global _context, _source, _limits
    _context, _source, _limits = context, source, limits
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends a worker at once, even in the middle of a long call
    if hasattr(os, "fork"):
        _start_guard(supervisor)
    _limit(limits)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[COMPILED] = "off"  # the backend under test compiles each time
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _start_guard(supervisor: Connection | None) -> None:
    """Start a process that ends this worker's whole group once the worker, or its supervisor, has died.

    So compilers that the backend started do not outlive the worker. The guard belongs to the group, so the group's
    number cannot have been given to another group when it is used.
    """
    global _alive
    os.setsid()
    reading, _alive = os.pipe()
    if os.fork():
        os.close(reading)
        return
    try:
        keep = {reading} if supervisor is None else {reading, supervisor.fileno()}
        for descriptor in _descriptors() - keep:
            with suppress(OSError):
                os.close(descriptor)
        select.select(list(keep), [], [])
    finally:
        os.killpg(0, signal.SIGKILL)


def _descriptors() -> set[int]:
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return {int(name) for name in os.listdir(folder)}  # noqa: PTH208
    return set(range(1024))


def _limit(limits: Limits) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if limits.memory is not None and sys.platform == "linux":
        # Not RLIMIT_AS: drivers reserve far more addresses than they use.
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = limits.memory if hard == resource.RLIM_INFINITY else min(hard, limits.memory)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def work(job: Job) -> None:
    """Try the examples of a case from `job.first` on, then look for smaller examples of the ordinary faults."""
    diary = _open(job)
    _start_stock()
    try:
        case = _case(job)
        certain = case.examples(_context)
        examples = _with_further(certain, case, job)
    except Exception as error:
        diary.write("failure", detail=f"{type(error).__name__}: {error}")
        _close(diary)
        return
    limit = limit_of(case, len(examples), _context.timeout)
    may_go_on = job.first < len(certain) and type(case).further is not Case.further
    diary.write("examples", count=len(examples), complete=not may_go_on)
    if job.only:
        _attempt(case, examples[job.first], job.first, limit, diary)
        _close(diary)
        return
    for index in range(job.first, len(examples)):
        _attempt(case, examples[index], index, limit, diary)
        _keep_partitioner()
    if may_go_on:
        examples = _attempt_further(case, examples, job, limit, diary)
    diary.write("shrink", limit=limit)
    _shrink_faults(case, examples, job, limit, diary)
    _close(diary)


def _start_stock() -> None:
    """Start the stock runtime's process before anything asks the backend: making examples may, and a process that is
    forked from one with an open device cannot open it."""
    if _context.stock:
        stock.start()


def _keep_partitioner() -> None:
    """Keep a partitioner as long as this process lives.

    State that they share, such as a server of the compiler, then stays and is not started for each example.
    Examples that check the lifetime of such state have processes of their own.
    """
    global _partitioner  # noqa: PLW0603
    if _partitioner is None and _context.backend:
        try:
            backend = discovery.get_backend(_context.backend)
            _partitioner = backend.create_partitioner(backend.make_options(_context.options))
        except Exception:  # examples report what is wrong with it
            _partitioner = False


def _attempt_further(case: Case, examples: Sequence[Any], job: Job, limit: float, diary: Diary) -> Sequence[Any]:
    """Try the case's further examples unless those that were tried settle it; returns all that were tried."""
    outcomes = Progress(Path(job.journal)).read().outcomes
    if case.is_settled([outcomes[index] for index in sorted(outcomes)], _context):
        return examples
    more = case.further(examples, _context)
    diary.write("examples", count=len(examples) + len(more), complete=True)
    for index, example in enumerate(more, len(examples)):
        _attempt(case, example, index, limit, diary)
    return [*examples, *more]


def work_alone(job: Job, example: Any) -> None:
    """Try only this example of the job's case; in the diary its index is 0."""
    diary = _open(job)
    _start_stock()
    case = _case(job)
    limit = limit_of(case, 1, _context.timeout)
    diary.write("examples", count=1, complete=True)
    _attempt(case, example, 0, limit, diary)
    _close(diary)


@dataclass(frozen=True)
class Shrunk:
    """The result of the search for a smaller example that ends a process in the same way."""

    example: Any
    #: Scripts of the smallest example and of the one that the search began with.
    snippet: str
    first_snippet: str
    #: True if the first example ends a process that tries nothing else; None if that was not tried.
    alone: bool | None = None
    smaller: bool = False


def shrink_death(job: Job, verdict: Verdict) -> Shrunk:
    """A smaller example than number `job.first` that ends a process in the same way.

    Candidates are tried in forked children, so this process must not have run the backend before.
    """
    diary = _open(job)
    case = _case(job)
    examples = _with_further(case.examples(_context), case, job)
    diary.write("shrink", limit=PREPARATION)
    shrunk = _shrink_death(case, examples[job.first], verdict)
    _close(diary)
    return shrunk


def _shrink_death(case: Case, example: Any, verdict: Verdict) -> Shrunk:
    snippet = case.snippet(example, _context)
    if type(case).shrink is Case.shrink or not hasattr(os, "fork"):
        return Shrunk(example, snippet, snippet)
    allowance = _Allowance(_context.profile.shrink_seconds)
    patience = allowance.left * _PATIENCE if verdict is Verdict.TIMEOUT else _context.timeout
    if _fate(case, example, patience) is not verdict:
        return Shrunk(example, snippet, snippet, alone=False)
    allowance = _Allowance(_context.profile.shrink_seconds)

    def fails(candidate: Any) -> bool:
        left = allowance.left
        if left <= 0:
            raise TimeoutError
        return _fate(case, candidate, patience if verdict is Verdict.TIMEOUT else min(left, patience)) is verdict

    smallest = case.shrink(example, fails, _context)
    return Shrunk(smallest, case.snippet(smallest, _context), snippet, alone=True, smaller=smallest is not example)


class _Allowance:
    """CPU seconds of this process and its children for a search, and wall time for sleeping processes."""

    def __init__(self, seconds: float) -> None:
        self._cpu = _cpu_seconds() + seconds
        self._wall = time.monotonic() + seconds * _limits.patience

    @property
    def left(self) -> float:
        """CPU seconds that are left; 0 or less at the end."""
        return min(self._cpu - _cpu_seconds(), (self._wall - time.monotonic()) / _limits.patience)


def _cpu_seconds() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def describe(example: Any) -> str:
    """The example in one line."""
    method = getattr(example, "describe", None)
    return str(method() if callable(method) else example)


def _open(job: Job) -> Diary:
    """Begin a job: its diary, and files for stderr and for tracebacks of crashes and hangs."""
    global _trace
    diary = Diary(Path(job.journal))
    diary.write("started", process=os.getpid(), limit=PREPARATION)
    errors = os.open(f"{job.journal}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(errors, 2)
    os.close(errors)
    _unwatch()
    before, _trace = _trace, Path(f"{job.journal}.trace").open("a", encoding="utf-8")  # noqa: SIM115
    faulthandler.enable(_trace)
    if hasattr(signal, "SIGPROF"):
        # After the traceback, the signal's default action: it ends the process.
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        faulthandler.register(signal.SIGPROF, _trace, chain=True)
    if before is not None:
        before.close()
    _watch(PREPARATION)
    return diary


def _close(diary: Diary) -> None:
    _unwatch()
    diary.write("done")
    diary.close()


def _watch(seconds: float) -> None:
    """End this process, with a traceback, unless this is called again before it has used this many CPU seconds.

    The operating system counts them: a busy machine makes no example time out.
    """
    assert _trace is not None
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.dump_traceback_later(seconds * _limits.patience, exit=True, file=_trace)


def _unwatch() -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    faulthandler.cancel_dump_traceback_later()


def _case(job: Job) -> Case:
    global _cases  # noqa: PLW0603
    if _cases is None:
        _cases = _source(_context)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
    return _cases[job.case]


def _with_further(examples: Sequence[Any], case: Case, job: Job) -> Sequence[Any]:
    """The case's examples; with the further ones where the job is about one of these."""
    return examples if job.first < len(examples) else [*examples, *case.further(examples, _context)]


def _attempt(case: Case, example: Any, index: int, limit: float, diary: Diary) -> None:
    assert _trace is not None
    sys.stderr.flush()
    for descriptor in (2, _trace.fileno()):  # only the output of this example is of interest
        os.ftruncate(descriptor, 0)
    diary.write("begin", index=index, example=describe(example), limit=limit)
    _watch(limit)
    outcome = _run(case, example)
    if outcome.verdict is Verdict.TIMEOUT:  # of a process that the case started; a slow start is no fault
        _watch(limit)
        outcome = _run(case, example)
    _watch(PREPARATION)
    diary.write("outcome", index=index, outcome=outcome.to_json(), limit=PREPARATION)


def _run(case: Case, example: Any) -> Outcome:
    """The case's outcome for the example, with its description and, for a fault, a script."""
    start, used = time.perf_counter(), _cpu_seconds()
    try:
        outcome = case.tried(example, _context)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        kind = Verdict.RUN_ERROR if isinstance(error, Exception) else Verdict.CRASH
        outcome = Outcome(kind, f"the case ended with {type(error).__name__}: {error}", blame="backend")
    changes: dict[str, Any] = {}
    if not outcome.example:
        changes["example"] = describe(example)
    if not outcome.seconds:
        changes["seconds"] = time.perf_counter() - start
    if not outcome.cpu:
        changes["cpu"] = _cpu_seconds() - used
    if not outcome.snippet and (outcome.verdict.is_fault or outcome.core):
        changes["snippet"] = case.snippet(example, _context)
    found = replace(outcome, **changes)
    return replace(found, snippet=with_bound(found.snippet, found.tolerance))


def _shrink_faults(case: Case, examples: Sequence[Any], job: Job, limit: float, diary: Diary) -> None:
    if type(case).shrink is Case.shrink:
        return  # the case has no smaller examples
    outcomes = Progress(Path(job.journal)).read().outcomes
    tally = Tally(case.name, case.tags)
    for index in sorted(outcomes):
        tally.add(outcomes[index])
    sought = [outcome for outcome in tally.faults.values() if not _is_known(job.case, outcome)]
    if _context.profile.alone:
        sought += tally.core_faults.values()
    kept = set(map(id, sought))
    for index, outcome in sorted(outcomes.items()):
        if id(outcome) not in kept or outcome.verdict in (Verdict.CRASH, Verdict.TIMEOUT):
            continue
        diary.write("shrink", index=index, limit=PREPARATION)
        small = _smaller(case, examples[index], outcome, limit)
        if small is not None:
            diary.write("shrunk", index=index, outcome=replace(small, shrunk=True).to_json())


def _is_known(case: str, fault: Outcome) -> bool:
    return _context.known is not None and _context.known(case, fault)


def _smaller(case: Case, example: Any, outcome: Outcome, limit: float) -> Outcome | None:
    """The outcome of the smallest example with the same kind of fault; None if that does not go wrong again."""
    allowance = _Allowance(_context.profile.shrink_seconds)

    def fails(candidate: Any) -> bool:
        if allowance.left <= 0:
            raise TimeoutError
        _watch(limit)
        alike = _run(case, candidate).kind == outcome.kind
        _watch(PREPARATION)
        return alike

    smallest = case.shrink(example, fails, _context)
    if smallest is example:
        return outcome
    _watch(limit)
    found = _run(case, smallest)
    _watch(PREPARATION)
    return found if found.kind == outcome.kind else None


def _fate(case: Case, example: Any, seconds: float) -> Verdict | None:
    """The end of a process that tries the example: CRASH, TIMEOUT after CPU `seconds`, or None if it survives."""
    child = os.fork()
    if not child:
        _live(lambda: case.run(example, _context), seconds)
    start, idle = time.monotonic(), Idle(child, seconds / 2)
    while True:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGPROF:
                return Verdict.TIMEOUT
            return None if code == _SURVIVED else Verdict.CRASH
        passed = time.monotonic() - start
        if passed > seconds * _limits.patience or (passed > seconds / 2 and idle.look()):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Verdict.TIMEOUT
        time.sleep(_POLL)


def _live(action: Callable[[], object], seconds: float) -> None:
    """Run the action in a forked child and end it, after CPU `seconds` at the latest. Does not return."""
    code = _SURVIVED
    try:
        if _alive is not None:
            os.close(_alive)  # only the worker keeps its guard alive
        faulthandler.disable()
        faulthandler.unregister(signal.SIGPROF)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        action()
    except Exception:
        pass
    except BaseException:
        code = 1
    finally:
        os._exit(code)
