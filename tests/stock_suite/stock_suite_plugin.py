"""A pytest plugin: ExecuTorch's own operator suite, which is in its wheel, run through DelegateKit.

    PYTHONPATH=tests/stock_suite python -m pytest -p stock_suite_plugin SUITE/operators -m flow_delegatekit_xnnpack

`run.py` beside this file does that, and prints the results as a table. With `-p` this module is imported before the
suite's conftest asks for its flows; the flows here take the place of the wheel's. Everything but the lowering is the
suite's: export, tolerances, reference and comparison, and the runtime, which is ExecuTorch's with its own XNNPACK.
Operators that no backend takes are run as well (the suite itself skips what has no delegate).

Environment variables:

* STOCK_SUITE_RESULTS: a file to which each test appends a line of JSON, with what happened in each of its subtests;
  a line before the test begins identifies tests that end the process.
* STOCK_SUITE_FILES: not empty: JSON of the operator files of each flow, the others are left out.
* STOCK_SUITE_PIPELINE: not empty: ExecuTorch's own pipeline lowers, with our partitioner.
* STOCK_SUITE_WITH_STOCK: not empty: the wheel's own XNNPACK flows stay, with the same inputs as ours.
"""

from __future__ import annotations

import json
import math
import operator
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import executorch.backends.test.suite.flow as suite_flow
import pytest
import torch
from executorch.backends.test.harness import Tester
from executorch.backends.test.harness.stages import Stage, StageType
from executorch.backends.test.harness.stages.serialize import Serialize
from executorch.backends.test.suite.flow import TestFlow
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects._ops import ops as exir_ops
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from executorch.exir.lowered_backend_module import get_lowered_submodules
from executorch.exir.passes.sym_shape_eval_pass import ConstraintBasedSymShapeEvalPass
from torch.export import ExportedProgram

import delegatekit
import delegatekit_executorch
from delegatekit_api import QuantizationError, UnsupportedError

RESULTS = "STOCK_SUITE_RESULTS"
WITH_STOCK = "STOCK_SUITE_WITH_STOCK"
PIPELINE = "STOCK_SUITE_PIPELINE"

BACKEND = "xnnpack"
#: Flow -> the scheme of `delegatekit.quantize`, None for float.
FLOWS: dict[str, str | None] = {
    "delegatekit_xnnpack": None,
    "delegatekit_xnnpack_static_int8_per_channel": "int8",
    "delegatekit_xnnpack_static_int8_per_tensor": "int8-per-tensor",
    "delegatekit_xnnpack_dynamic_int8_per_channel": "int8-dynamic",
}
#: The same flows of the wheel, after which ours are named.
PREFIX = "delegatekit_"

_NOTHING = "quantizes nothing"


class Quantize(Stage):  # type: ignore[misc]
    """`delegatekit.quantize`, calibrated with the example inputs as the wheel's flows are."""

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.module: torch.nn.Module | None = None
        #: Whether anything of the model is quantized; a model without such operators stays as it is.
        self.quantized = True

    def stage_type(self) -> StageType:
        return StageType.QUANTIZE

    def run(self, artifact: torch.nn.Module, inputs: Any) -> None:
        try:
            self.module = delegatekit.quantize(artifact, [tuple(inputs)], backend=BACKEND, scheme=self.scheme)
        except QuantizationError as error:
            if _NOTHING not in str(error):
                raise
            self.module, self.quantized = artifact, False

    @property
    def artifact(self) -> Any:
        return self.module

    @property
    def graph_module(self) -> Any:
        return self.module


class Lower(Stage):  # type: ignore[misc]
    """`delegatekit.lower`, and as much of the stock stage's artifact as the suite looks at."""

    def __init__(self) -> None:
        self.buffer = b""
        self.delegates = 0
        self.delegated: Counter[str] = Counter()
        self.fallback: Counter[str] = Counter()
        #: Why there is no file: operators that neither XNNPACK nor the stock runtime has. Empty if there is one.
        self.refused = ""
        #: Operator -> why the backend left it.
        self.reasons: dict[str, str] = {}
        self._nodes: list[Any] = []
        self._left: list[Any] = []

    def stage_type(self) -> StageType:
        return StageType.TO_EDGE_TRANSFORM_AND_LOWER

    def run(self, artifact: ExportedProgram, inputs: Any = None, generate_etrecord: bool = False) -> None:
        try:
            program = delegatekit.lower(artifact, backends=[BACKEND])
        except UnsupportedError as error:
            # The suite lowers such models silently, and does not run them. The runtime's own list of kernels
            # says whether the refusal is right; a few operators the suite knows, and skips if it sees them left.
            self._nodes = self._left = [_seen(node) for node in artifact.graph.nodes if node.op == "call_function"]
            unsupported = delegatekit.explain(artifact, backends=[BACKEND]).unsupported
            self.reasons = {row.operator: "; ".join(row.reasons.values()) for row in unsupported}
            lacking = all(_has_no_kernel(row.operator) for row in unsupported)
            if not (unsupported and lacking) and not _known_to_the_suite(self._left):
                raise
            self.refused = str(error)
            return
        self.buffer = program.buffer
        (method,) = program.methods.values()
        self.delegates = len(method.delegates)
        for edge, plan in _graphs(method.edge, method.plan):
            left = {node for node in plan.fallback if node.op == "call_function"}
            calls = [node for node in edge.graph.nodes if node.op == "call_function"]
            nodes = [node for node in calls if node.target is not operator.getitem]
            self._nodes += map(_seen, nodes)
            self._left += [_seen(node) for node in nodes if node in left]
            for node in nodes:
                (self.fallback if node in left else self.delegated)[str(node.target)] += 1
                if node in left:
                    verdict = plan.verdicts.get(node, {}).get(BACKEND)
                    taken = verdict is not None and verdict.supported
                    reason = "taken only with company" if taken else verdict.reason if verdict is not None else "?"
                    self.reasons[str(node.target)] = reason

    @property
    def artifact(self) -> Any:
        before = SimpleNamespace(graph=SimpleNamespace(nodes=self._nodes))
        after = SimpleNamespace(graph=SimpleNamespace(nodes=self._left))
        record = SimpleNamespace(edge_dialect_program=before)
        return SimpleNamespace(_etrecord=record, _edge_programs={"forward": after}, buffer=self.buffer)

    @property
    def graph_module(self) -> Any:
        call = SimpleNamespace(op="call_function", target=torch._higher_order_ops.executorch_call_delegate)
        return SimpleNamespace(graph=SimpleNamespace(nodes=[call] * self.delegates))


class LowerInStockPipeline(Lower):
    """ExecuTorch's own pipeline with our partitioner."""

    def run(self, artifact: ExportedProgram, inputs: Any = None, generate_etrecord: bool = False) -> None:
        partitioner = delegatekit_executorch.partitioner(BACKEND)
        config = EdgeCompileConfig(_check_ir_validity=False)  # as the suite's
        manager = to_edge_transform_and_lower(artifact, partitioner=[partitioner], compile_config=config)
        self.reasons = {refused.operator: refused.reason for refused in partitioner.refused}
        graph_module = manager.exported_program().graph_module
        self._left = [_seen(node) for node in _operators(graph_module)]
        self._nodes = list(self._left)
        for _, module, _ in get_lowered_submodules(graph_module):
            self.delegates += 1
            inner = list(_operators(module.original_module.graph_module))
            self._nodes += map(_seen, inner)
            self.delegated.update(_name_of(node) for node in inner)
        self.fallback.update(_name_of(node) for node in _operators(graph_module))
        sizes = ConstraintBasedSymShapeEvalPass()
        try:
            program = manager.to_executorch(
                ExecutorchBackendConfig(extract_delegate_segments=True, sym_shape_eval_pass=sizes)
            )
        except RuntimeError as error:
            lacking = [name for name in self.fallback if _has_no_kernel(name)]
            if not lacking and not _known_to_the_suite(self._left):
                raise
            self.refused = str(error)
            return
        self.buffer = program.buffer


class ToExecutorch(Stage):  # type: ignore[misc]
    """Does nothing: `delegatekit.lower` made the file."""

    def __init__(self) -> None:
        self.program: Any = None

    def stage_type(self) -> StageType:
        return StageType.TO_EXECUTORCH

    def run(self, artifact: Any, inputs: Any = None) -> None:
        self.program = artifact

    @property
    def artifact(self) -> Any:
        return self.program

    @property
    def graph_module(self) -> Any:
        return None


class DelegateKitTester(Tester):  # type: ignore[misc]
    """The suite's tester (reference, comparison, stock runtime) with our stages in the place of the lowering."""

    def __init__(self, module: torch.nn.Module, example_inputs: tuple[Any, ...]) -> None:
        stages: dict[StageType, Callable[..., Stage]] = {
            **Tester.default_stage_classes(),
            StageType.TO_EDGE_TRANSFORM_AND_LOWER: LowerInStockPipeline if os.environ.get(PIPELINE) else Lower,
            StageType.TO_EXECUTORCH: ToExecutorch,
            StageType.SERIALIZE: Serialize,
        }
        super().__init__(module, example_inputs, stage_classes=stages)
        _testers.append(self)

    def run_method_and_compare_outputs(self, *arguments: Any, **options: Any) -> Any:
        """Run the file in the stock runtime, if there is one."""
        if self.stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER].refused:
            return self
        return super().run_method_and_compare_outputs(*arguments, **options)

    def story(self) -> dict[str, Any]:
        """Facts of our stages beyond those that the suite records."""
        quantize, lower = self.stages[StageType.QUANTIZE], self.stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER]
        story: dict[str, Any] = {"quantized": quantize.quantized} if quantize is not None else {}
        if lower is not None:
            story |= {
                "delegates": lower.delegates,
                "refused": lower.refused,
                "delegated_ops": dict(lower.delegated),
                "fallback_ops": dict(lower.fallback),
                "reasons": lower.reasons,
            }
        return story


#: The testers of the test that runs.
_testers: list[DelegateKitTester] = []


def _graphs(edge: Any, plan: Any) -> Iterator[tuple[Any, Any]]:
    yield edge, plan
    for call, regions in plan.regions.items():
        for inner, inner_plan in zip(edge.regions[call], regions, strict=True):
            yield from _graphs(inner, inner_plan)


def _operators(module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    """The calls of operators: no delegates, and nothing that picks one of several results."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target not in (operator.getitem, executorch_call_delegate):
            yield node


def _name_of(node: torch.fx.Node) -> str:
    target: Any = node.target
    return str(target._op) if isinstance(target, EdgeOpOverload) else str(target)


def _seen(node: torch.fx.Node) -> Any:
    """The node as the suite looks at it: it knows two operators only by their names in the stock edge dialect."""
    target: Any = node.target
    if isinstance(target, EdgeOpOverload):
        return SimpleNamespace(op=node.op, target=target, args=node.args)
    if str(target).startswith(("aten.convolution.", "aten.conv3d.", "aten.conv_transpose3d.")):
        target = exir_ops.edge.aten.convolution.default
    elif str(target).startswith("aten.embedding_bag."):
        target = "aten::_embedding_bag"
    return SimpleNamespace(op=node.op, target=target, args=node.args)


def _has_no_kernel(name: str) -> bool:
    """True if the stock runtime has no kernel under any overload of an operator, "aten.avg_pool3d.default"."""
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    namespace, packet, *_ = name.split(".")
    return not any(f"{known}.".startswith(f"{namespace}::{packet}.") for known in _get_operator_names())


def _known_to_the_suite(left: list[Any]) -> bool:
    from executorch.backends.test.suite.reporting import count_ops
    from executorch.backends.test.suite.runner import UNSUPPORTED_PORTABLE_OPS, _graph_has_unsupported_patterns

    program = SimpleNamespace(graph=SimpleNamespace(nodes=left))
    known = UNSUPPORTED_PORTABLE_OPS.intersection(count_ops({"forward": program}))
    return bool(known) or bool(_graph_has_unsupported_patterns(program))


def _flow(name: str, scheme: str | None) -> TestFlow:
    return TestFlow(
        name,
        backend="delegatekit",
        tester_factory=DelegateKitTester,
        quantize=scheme is not None,
        quantize_stage_factory=None if scheme is None else lambda: Quantize(scheme),
        is_delegated=False,  # the runtime's operators are run, too
    )


_load_stock = suite_flow._load_xnnpack


def all_flows() -> dict[str, TestFlow]:
    """Our flows; and the wheel's XNNPACK flows, if they are asked for."""
    flows = {name: _flow(name, scheme) for name, scheme in FLOWS.items()}
    if os.environ.get(WITH_STOCK):
        flows |= {flow.name: flow for flow in _load_stock()}
    return flows


suite_flow.all_flows = all_flows


# -- hooks -------------------------------------------------------------------------------------------------------------


def _name(item: pytest.Item) -> dict[str, str]:
    callspec = getattr(item, "callspec", None)
    flow = callspec.params.get("test_runner") if callspec is not None else None
    test = item.name.replace(f"{flow}-", "").replace(f"[{flow}]", "")
    return {"file": Path(item.path).stem.removeprefix("test_"), "test": test, "flow": str(flow)}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the files that are not selected of a flow."""
    if not os.environ.get("STOCK_SUITE_FILES"):
        return
    chosen = json.loads(os.environ["STOCK_SUITE_FILES"])
    wanted = [item for item in items if (name := _name(item))["file"] in chosen.get(name["flow"], ())]
    config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
    items[:] = wanted


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Give each test numbers of its own, the same in every run and in every flow."""
    name = _name(item)
    seed = zlib.crc32(f"{name['file']}.{name['test']}".encode())
    random.seed(seed)
    torch.manual_seed(seed)
    _testers.clear()
    _write({**name, "event": "begin"})


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Record the outcome."""
    report = getattr(item, "stock_suite_report", None)
    runner = getattr(item, "funcargs", {}).get("test_runner")
    subtests = []
    for index, summary in enumerate(runner._results if runner is not None else ()):
        story = _testers[index].story() if index < len(_testers) else {}
        subtests.append({**_summary(summary), **story})
    outcome, why = report if report is not None else ("skipped", "")
    _write({**_name(item), "event": "end", "outcome": outcome, "why": why, "subtests": subtests})
    item.__dict__.pop("stock_suite_report", None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Keep the outcome of the test until its teardown."""
    outcome: Any = yield
    report = outcome.get_result()
    if call.when == "call" or report.outcome != "passed":
        why = str(call.excinfo.value) if call.excinfo is not None else ""
        item.stock_suite_report = (report.outcome, why[:1000])  # type: ignore[attr-defined]


def _summary(summary: Any) -> dict[str, Any]:
    delegated = summary.delegated_op_counts or {}
    left = summary.undelegated_op_counts or {}
    return {
        "result": summary.result.name,
        "error": f"{type(summary.error).__name__}: {summary.error}"[:1000] if summary.error is not None else "",
        "delegates": int(summary.is_delegated()),
        "delegated_ops": dict(delegated),
        "fallback_ops": dict(left),
        "sqnr": [_ratio(statistics) for statistics in summary.tensor_error_statistics],
        "error_max": [statistics.error_max for statistics in summary.tensor_error_statistics],
        "bytes": summary.pte_size_bytes,
        "lower_s": summary.lower_time.total_seconds() if summary.lower_time is not None else None,
    }


def _ratio(statistics: Any) -> float | str | None:
    """Signal to noise in dB; "exact" without noise, None where there is none (other shapes, infinities)."""
    if statistics.error_max == 0.0:
        return "exact"
    ratio = statistics.sqnr
    return ratio if ratio is not None and math.isfinite(ratio) else None


def _write(record: dict[str, Any]) -> None:
    path = os.environ.get(RESULTS)
    if path:
        line = json.dumps(record, default=str) + "\n"
        with Path(path).open("a") as file:
            file.write(line)
