"""Persistent buffers, methods that share them, and threads that do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import handmade
import pytest
import torch

import delegatekit
from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit.pte.manifest import MANIFEST_KEY
from delegatekit.pte.schema import Bool, EValue, ExtraTensorInfo, Int, KernelCall, Operator
from delegatekit_api import Availability, ExecutionError, FormatError, NamedData

ONE = torch.ones(5)
START = torch.arange(5.0)


def method_plan(name: str, operator: str, offset: int, size: int = 5, initial: int = 1) -> schema.ExecutionPlan:
    """seen = OP(seen, x); returns seen + 0 * x. The buffer `seen` lies at `offset`, `mine` after it."""
    buffers = [handmade.tensor([size], place, constant=initial) for place in (offset, offset + 32)]
    for buffer, fqn in zip(buffers, ("seen", "mine"), strict=True):
        assert isinstance(buffer.val, schema.Tensor)
        buffer.val.extra_tensor_info = ExtraTensorInfo(fully_qualified_name=fqn)
    values = [handmade.tensor([size], 0), *buffers, handmade.tensor([size], 256), EValue(Int(1)), EValue(Bool(False))]
    # The buffer under another name in the same memory, as elided views are.
    values.append(handmade.tensor([1, size], offset))
    values.append(handmade.tensor([1, size], 320))
    values.append(EValue(schema.Null()))
    add = [4] if operator == "add" else []
    calls = [
        KernelCall(0, [1, 0, *add, 3, 3]),
        KernelCall(1, [1, 3, 5, 1]),
        KernelCall(2, [2, 0, 4, 3, 3]),
        KernelCall(1, [2, 3, 5, 2]),
        KernelCall(3, [6, 8, 7, 7]),
    ]
    operators = [Operator(f"aten::{operator}", "out"), Operator("aten::copy_", "")]
    operators += [Operator("aten::add", "out"), Operator("aten::clone", "out")]
    return handmade.plan(values, [0], [7, 2], calls, name=name, operators=operators, non_const_buffer_sizes=[0, 512])


def two_methods(shared: Sequence[str] = ("seen",), **more: Any) -> bytes:
    plans = (method_plan("grow", "add", 64), method_plan("scale", "mul", 128, **more))
    manifest = json.dumps({"shared_state": list(shared)}).encode()
    state = (START, START + 1)
    return to_bytes(PteImage(plans, mutable_state=state, named_data=(NamedData(MANIFEST_KEY, manifest),)))


def test_methods_of_a_program_share_the_buffers_that_the_file_names() -> None:
    program = delegatekit.load(two_methods())
    seen, mine = START.clone(), {"grow": START.clone(), "scale": START.clone()}
    for name, x in (("grow", ONE), ("scale", 2 * ONE), ("scale", 3 * ONE), ("grow", ONE)):
        seen = seen + x if name == "grow" else seen * x
        mine[name] += x
        result, own = program[name](x)
        assert torch.equal(result[0], seen)
        assert torch.equal(own, mine[name])
    assert torch.equal(program["grow"].state["seen"], seen)
    assert program["grow"].state["seen"].data_ptr() == program["scale"].state["seen"].data_ptr()


def test_methods_share_nothing_that_the_file_does_not_name() -> None:
    program = delegatekit.load(two_methods(shared=()))
    program["grow"](ONE)
    assert torch.equal(program["scale"].state["seen"], START)


def test_a_method_that_is_made_later_finds_the_buffer_as_it_is() -> None:
    program = delegatekit.load(two_methods())
    program["grow"](ONE)
    assert torch.equal(program["scale"].state["seen"], START + 1)
    assert torch.equal(program["scale"].state["mine"], START)


def test_a_session_has_buffers_of_its_own() -> None:
    program = delegatekit.load(two_methods())
    first, second = program.new_session(), program.new_session()
    for session in (first, second, program):
        session["grow"](ONE)
        result, _ = session["scale"](2 * ONE)
        assert torch.equal(result[0], 2 * (START + 1))
    assert list(first) == list(program) == ["grow", "scale"]
    assert torch.equal(program.new_method("scale").state["seen"], START)


def test_reset_brings_the_initial_values_back() -> None:
    program = delegatekit.load(two_methods())
    for _ in range(2):
        for name in program:
            program[name](3 * ONE)
        program.reset()
        for name in program:
            assert all(torch.equal(buffer, START) for buffer in program[name].state.values())
    program["grow"](ONE)
    program["grow"].reset()
    assert torch.equal(program["grow"](ONE)[0][0], START + 1)


def test_state_can_be_saved_and_restored() -> None:
    method = delegatekit.load(two_methods())["grow"]
    method(ONE)
    saved = {name: buffer.clone() for name, buffer in method.state.items()}
    assert set(saved) == {"seen", "mine"}
    after, _ = method(ONE)
    for name, buffer in method.state.items():
        buffer.copy_(saved[name])
    assert torch.equal(method(ONE)[0], after)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": 4}, r"shared buffer seen: is float32 \[4\] .* in method scale, but float32 \[5\] .* in method grow"),
        ({"initial": 2}, "shared buffer seen: starts with other values in method scale than in method grow"),
    ],
)
def test_shared_buffers_that_disagree_are_refused(change: dict[str, int], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        delegatekit.load(two_methods(**change))


def test_a_manifest_of_nonsense_shares_nothing() -> None:
    for shared in ({"seen": 1}, "seen", [1, None]):
        manifest = json.dumps({"shared_state": shared}).encode()
        image = PteImage(
            (method_plan("grow", "add", 64),), mutable_state=(START,), named_data=(NamedData(MANIFEST_KEY, manifest),)
        )
        assert delegatekit.load(to_bytes(image))["grow"](ONE)[0].shape == (1, 5)


# -- threads ---------------------------------------------------------------------------------------------------------


class Waiting:
    """A runtime that blocks until released, and counts its instances."""

    made = 0

    def __init__(self) -> None:
        Waiting.made += 1
        self.entered = threading.Event()
        self.go = threading.Event()
        self.initialized: list[int] = []

    def is_available(self) -> Availability:
        return Availability(True)

    def init(self, payload: Any) -> int:
        self.initialized.append(len(self.initialized))
        return self.initialized[-1]

    def execute(self, handle: int, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        self.entered.set()
        assert self.go.wait(20)
        outputs[0].copy_(inputs[0])

    def destroy(self, handle: int) -> None:
        pass


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    runtime = Waiting()
    yield runtime
    runtime.go.set()


def load_with(runtime: Any, **description: Any) -> Any:
    found = SimpleNamespace(
        name="test",
        runtime_availability=lambda: Availability(True),
        create_runtime=runtime if isinstance(runtime, type) else lambda: runtime,
        description=SimpleNamespace(**description),
    )
    return delegatekit.load(handmade.delegate_program(), find_backend=lambda name: found)  # type: ignore[arg-type, return-value]


def test_a_call_from_a_second_thread_is_an_error_and_harms_neither(waiting: Waiting) -> None:
    method = load_with(waiting)["forward"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(method, ONE)
        assert waiting.entered.wait(20)
        actions: list[Callable[[], Any]] = [lambda: method(START), lambda: method.run([START]), method.reset]
        for action in actions:
            with pytest.raises(ExecutionError, match=r"method forward: is already running.*\n.*new_session"):
                action()
        waiting.go.set()
        assert torch.equal(running.result(), ONE)
    assert torch.equal(method(START), START)


def test_closing_waits_for_the_call_that_is_going_on(waiting: Waiting) -> None:
    program = load_with(waiting)
    method = program["forward"]
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(method, ONE)
        assert waiting.entered.wait(20)
        closing = pool.submit(program.close)
        waiting.go.set()
        assert torch.equal(running.result(), ONE)
        closing.result()
    with pytest.raises(ExecutionError, match="was closed"):
        method(ONE)


def test_closing_a_program_closes_its_sessions(waiting: Waiting) -> None:
    with load_with(waiting) as program:
        methods = [program["forward"], program.new_session()["forward"], program.new_method("forward")]
    for method in methods:
        with pytest.raises(ExecutionError, match="was closed"):
            method(ONE)


def test_threads_that_ask_at_once_get_one_method_and_one_runtime() -> None:
    class Slow(Waiting):
        def is_available(self) -> Availability:
            threading.Event().wait(0.05)
            return Availability(True)

    Waiting.made = 0
    program = load_with(Slow)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: program["forward"], range(8)))
        more = list(pool.map(lambda _: program.new_method("forward"), range(8)))
    assert len(set(found)) == 1 and len(set(more)) == 8
    assert Waiting.made == 1


@pytest.mark.parametrize("owns", [True, False])
def test_reset_makes_delegates_anew_that_own_state(owns: bool, waiting: Waiting) -> None:
    waiting.go.set()
    method = load_with(waiting, owns_state=owns)["forward"]
    method(ONE)
    method.reset()
    assert waiting.initialized == ([0, 1] if owns else [0])
    assert torch.equal(method(START), START)


def test_sessions_work_at_the_same_time() -> None:
    program = delegatekit.load(two_methods())

    def work(seed: int) -> bool:
        session = program.new_session()
        seen = START.clone()
        for step in range(100):
            x = torch.full((5,), float((seed + step) % 3))
            name = "grow" if step % 4 else "scale"
            seen = seen + x if name == "grow" else seen * x
            if not torch.equal(session[name](x)[0][0], seen):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
