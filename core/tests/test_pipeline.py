"""The pipeline from a model to a file: accepted and refused inputs, messages, and forbidden side effects."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit import LoweredProgram
from delegatekit.plugins import discovery
from delegatekit.pte import read
from delegatekit_api import (
    Availability,
    BackendDescription,
    DelegateKitError,
    LoweringError,
    MethodPlan,
    OptionError,
    PluginError,
    PreprocessResult,
    UnsupportedError,
    Verdict,
    hookimpl,
)
from delegatekit_api.nodes import operator_name
from delegatekit_api.versions import API_VERSION

X = torch.randn(2, 3, 8, 8)


def in_stock(data: bytes) -> Any:
    """The method `forward`, loaded by the stock runtime; the test is skipped if that is not installed."""
    reason = "the stock runtime (executorch) is not installed"
    stock = pytest.importorskip("executorch.extension.pybindings._C", reason=reason)
    return stock._load_program_from_buffer(data).load_method("forward")


class Takes:
    """A backend plugin that takes some operators and compiles them to the list of their names."""

    def __init__(self, name: str, operators: Collection[str], keep: Collection[str] = ()) -> None:
        self.name, self.operators, self.keep = name, operators, keep
        self.seen: list[list[str]] = []

    @hookimpl
    def describe_backend(self) -> BackendDescription:
        return BackendDescription(self.name, f"{self.name}Backend", f"delegatekit-{self.name}", "0", "a test backend")

    @hookimpl
    def create_partitioner(self, options: Any) -> Any:
        plugin = self

        class Partitioner:
            def keep_operators(self) -> Collection[str]:
                return plugin.keep

            def check(self, call: Any) -> Verdict:
                name = call.operator
                return Verdict.yes() if name in plugin.operators else Verdict.no(f"{name} is not for {plugin.name}")

            def propose(self, program: Any) -> None:
                return None

        return Partitioner()

    @hookimpl
    def preprocess(self, partition: Any, options: Any) -> PreprocessResult:
        nodes = [operator_name(node) for node in partition.view.graph.nodes if node.op == "call_function"]
        self.seen.append(nodes)
        return PreprocessResult(",".join(nodes).encode())


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs plugin objects in place of the entry points."""
    plugins: dict[str, Any] = {}

    def get_backend(name: str) -> Any:
        info = discovery.BackendInfo(name, f"delegatekit-{name}", "0", status="broken")
        return discovery._introduce(info, plugins[name])

    def add(*items: Any) -> None:
        plugins.update({item.name: item for item in items})
        monkeypatch.setattr(discovery, "get_backend", get_backend)

    return add


def delegates(program: LoweredProgram, method: int = 0) -> list[tuple[str, int]]:
    return [(item.backend, item.nodes) for item in delegatekit.report(program).methods[method].delegates]


class Two(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) * torch.cos(x) + 1


def test_backends_share_a_program_by_priority(install: Any) -> None:
    first, second = Takes("one", {"aten.sin.default"}), Takes("two", {"aten.sin.default", "aten.cos.default"})
    install(first, second)
    assert delegates(delegatekit.lower(Two(), (X,), backends=["one", "two"])) == [("one", 1), ("two", 1)]
    assert delegates(delegatekit.lower(Two(), (X,), backends=["two", "one"])) == [("two", 2)]


def test_a_backend_that_took_nothing_is_in_the_report_with_its_most_frequent_reason(install: Any) -> None:
    install(Takes("one", {"aten.sin.default"}), Takes("two", set()), Takes("all", {"aten.sin.default"}))
    module = nn.Sequential(nn.ReLU(), Two(), nn.ReLU())
    program = delegatekit.lower(module, (X,), backends=["one", "two"])
    reason = "aten.relu.default is not for two (2 of 5 operators)"
    assert delegatekit.report(program).idle == {"two": reason}
    assert f"\nbackend two took nothing: {reason}\n" in str(delegatekit.report(program))
    report = delegatekit.report(delegatekit.lower(module, (X,), backends=["all"]))
    assert not report.idle and "took nothing" not in str(report)
    program = delegatekit.lower(nn.Identity(), (X,), backends=["one"])
    assert delegatekit.report(program).idle == {"one": "there is nothing to compute"}


def test_an_operator_kept_for_a_backend_that_leaves_it_is_decomposed_after_all(install: Any) -> None:
    install(Takes("one", {"aten.relu.default"}, keep={"aten.layer_norm.default", "aten.hardswish.default"}))
    module = nn.Sequential(nn.LayerNorm(8), nn.ReLU(), nn.Hardswish())
    program = delegatekit.lower(module, (X,), backends=["one"])
    assert delegates(program) == [("one", 1)]
    assert "aten::native_layer_norm.out" in delegatekit.report(program).methods[0].fallback


def test_a_kept_operator_reaches_the_backend_whole(install: Any) -> None:
    backend = Takes("one", {"aten.layer_norm.default"}, keep={"aten.layer_norm.default"})
    install(backend)
    delegatekit.lower(nn.LayerNorm(8), (X,), backends=["one"])
    assert backend.seen == [["aten.layer_norm.default"]]


def test_named_data_of_backends_is_not_what_we_store_ourselves(install: Any) -> None:
    install(Takes("one", {"aten.sin.default"}))
    program = delegatekit.lower(Two(), (X,), backends=["one"])
    assert "delegatekit.manifest" in read(program.buffer).named_data
    assert delegatekit.report(program).named_data_size == 0
    assert "named data of backends 0 B" in str(delegatekit.report(program))


def test_the_file_records_who_made_each_delegate(install: Any) -> None:
    install(Takes("one", {"aten.sin.default"}))
    found = delegatekit.inspect(delegatekit.lower(Two(), (X,), backends=["one"]).buffer)
    (delegate,) = found.methods[0].delegates
    assert (delegate.id, delegate.distribution, delegate.version, delegate.api_version) == (
        "oneBackend",
        "delegatekit-one",
        "0",
        str(API_VERSION),
    )


def test_the_arena_is_padded_for_runtimes_that_read_past_the_end(install: Any) -> None:
    backend = Takes("one", {"aten.sin.default"})
    description = dataclasses.replace(backend.describe_backend(), overread_bytes=64)
    backend.describe_backend = hookimpl(lambda: description)  # type: ignore[method-assign]
    plain = Takes("two", {"aten.sin.default"})
    install(backend, plain)
    sizes = [
        delegatekit.report(delegatekit.lower(Two(), (X,), backends=[name])).methods[0].arena_size
        for name in ("one", "two")
    ]
    assert sizes[0] == sizes[1] + 64


def test_several_methods_share_a_file_and_their_constants() -> None:
    linear = nn.Linear(64, 64)
    programs = {
        "plain": torch.export.export(linear, (torch.randn(1, 64),)),
        "wide": torch.export.export(linear, (torch.randn(5, 64),)),
    }
    program = delegatekit.lower(programs, backends=[])
    x = torch.randn(5, 64)
    loaded = delegatekit.load(program.buffer)
    assert set(loaded) == {"plain", "wide"}
    torch.testing.assert_close(loaded["wide"](x), linear(x))
    torch.testing.assert_close(loaded["plain"](x[:1]), linear(x[:1]))
    assert len(program.buffer) < 2 * 64 * 64 * 4


def test_lowering_twice_gives_the_same_bytes_and_leaves_the_program_as_it_was() -> None:
    program = torch.export.export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval(), (X,), strict=False)
    before = (str(program.graph), {name: tensor.clone() for name, tensor in program.state_dict.items()})
    first = delegatekit.lower(program, backends=[]).buffer
    assert delegatekit.lower(program, backends=[]).buffer == first
    assert str(program.graph) == before[0]
    assert all(torch.equal(before[1][name], tensor) for name, tensor in program.state_dict.items())


def test_a_mutable_buffer_counts_in_the_stock_runtime_and_in_the_engine() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.full((1,), 10.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x + self.count

    data = delegatekit.lower(Counter(), (torch.zeros(1),), backends=[]).buffer
    stock = in_stock(data)
    ours = delegatekit.load(data)["forward"]
    assert [stock((torch.zeros(1),))[0].item() for _ in range(3)] == [11.0, 12.0, 13.0]
    assert [ours(torch.zeros(1)).item() for _ in range(3)] == [11.0, 12.0, 13.0]


def test_buffers_that_are_returned_or_exchanged_keep_their_old_values() -> None:
    class Exchange(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.ones(2))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            old, other = self.a.clone(), self.b.clone()
            self.a.copy_(other)
            self.b.copy_(old)
            return old, other + x

    x = torch.zeros(2)
    data = delegatekit.lower(Exchange(), (x,), backends=[]).buffer
    stock = in_stock(data)
    ours, eager = delegatekit.load(data)["forward"], Exchange()
    for _ in range(3):
        expected = [tensor.tolist() for tensor in eager(x)]
        assert [tensor.tolist() for tensor in ours(x)] == expected
        assert [tensor.tolist() for tensor in stock((x,))] == expected


def test_explain_names_operator_reason_and_source_line_of_what_nothing_runs(install: Any) -> None:
    install(Takes("one", {"aten.sin.default"}))

    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            return torch.linalg.inv(y)

    explanation = delegatekit.explain(Odd(), (torch.randn(3, 3),), backends=["one"])
    (row,) = explanation.unsupported
    assert row.operator == "aten.linalg_inv_ex.default"
    assert row.reasons == {
        "one": "aten.linalg_inv_ex.default is not for one",
        "runtime": "the runtime has no kernel for it",
    }
    assert "test_pipeline.py" in row.source
    assert "torch.linalg.inv(y)" in row.source
    assert "NOTHING RUNS IT" in str(explanation)
    with pytest.raises(UnsupportedError, match=r"linalg_inv_ex.*test_pipeline\.py"):
        delegatekit.lower(Odd(), (torch.randn(3, 3),), backends=["one"])


def test_explain_shows_what_was_decomposed_and_why_it_was_refused_whole(install: Any) -> None:
    install(Takes("one", {"aten.relu.default"}, keep={"aten.layer_norm.default", "aten.hardswish.default"}))
    module = nn.Sequential(nn.LayerNorm(8), nn.ReLU(), nn.Hardswish())
    explanation = delegatekit.explain(module, (X,), backends=["one"])
    first, second = explanation.decomposed
    assert (first.operator, first.became, first.round) == (
        "aten.layer_norm.default",
        ("aten.native_layer_norm.default",),
        1,
    )
    assert first.reasons == {
        "one": "aten.layer_norm.default is not for one",
        "runtime": "the runtime has no kernel for it",
    }
    assert first.module == "0" and "layer_norm" in first.source
    assert second.operator == "aten.hardswish.default" and "aten.clamp.default" in second.became
    assert not explanation.unsupported
    assert "aten.layer_norm.default" not in {row.operator for row in explanation.rows}
    text = str(explanation)
    assert "aten.layer_norm.default (layer_norm_default): decomposed into aten.native_layer_norm.default" in text
    assert "    one: aten.layer_norm.default is not for one\n" in text


def test_explain_shows_every_round_of_partitioning(install: Any) -> None:
    install(Takes("one", {"aten.relu.default"}, keep={"aten.layer_norm.default"}))
    module = nn.Sequential(nn.LayerNorm(8), nn.ReLU()).half()
    explanation = delegatekit.explain(module, (X.half(),), backends=["one"])
    assert [(row.round, row.operator) for row in explanation.decomposed] == [
        (1, "aten.layer_norm.default"),
        (2, "aten.native_layer_norm.default"),
    ]
    assert explanation.decomposed[1].reasons == {
        "one": "aten.native_layer_norm.default is not for one",
        "runtime": "the runtime's kernel sums up in the narrow type",
    }
    assert "aten._to_copy.default" in explanation.decomposed[1].became
    assert not explanation.unsupported


def test_explain_shows_what_was_decomposed_inside_control_flow(install: Any) -> None:
    install(Takes("one", set(), keep={"aten.hardswish.default"}))

    class Either(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.cond(x.sum() > 0, nn.functional.hardswish, torch.sin, (x,))
            return result

    explanation = delegatekit.explain(Either(), (X,), backends=["one"])
    (row,) = explanation.decomposed
    assert (row.operator, row.reasons["one"]) == ("aten.hardswish.default", "aten.hardswish.default is not for one")


def test_a_case_that_the_runtimes_kernel_would_refuse_is_refused_before_it_runs() -> None:
    # The runtime's convolution has two dimensions: of three, it is a sum of these, but not of integers.
    function, x, weight = torch.nn.functional.conv3d, torch.ones(1, 1, 4, 4, 4), torch.ones(2, 1, 3, 3, 3)

    class Convolution(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return function(x, weight)

    module = Convolution()
    assert not delegatekit.explain(module, (x, weight), backends=[]).unsupported
    integers = (x.to(torch.int64), weight.to(torch.int64))
    (row,) = delegatekit.explain(module, integers, backends=[]).unsupported
    assert row.reasons == {"runtime": "the runtime's convolution has no 3-d form"}
    with pytest.raises(UnsupportedError, match="no 3-d form"):
        delegatekit.lower(module, integers, backends=[])


REFUSED: dict[str, tuple[Any, type[DelegateKitError], str]] = {
    "no inputs": (lambda: delegatekit.lower(Two(), backends=[]), LoweringError, "example inputs"),
    "a bare tensor": (lambda: delegatekit.lower(Two(), X, backends=[]), LoweringError, "inputs is a tensor"),
    "a string of options": (
        lambda: delegatekit.lower(Two(), (X,), backends=["one"], options="fast=1"),
        LoweringError,
        "options = 'fast=1' is not",
    ),
    "options by number": (
        lambda: delegatekit.lower(Two(), (X,), backends=["one"], options={3: {}}),
        LoweringError,
        "options for 3, which is not among",
    ),
    "options of a backend as a string": (
        lambda: delegatekit.lower(Two(), (X,), backends=["reference"], options={"reference": "fast=1"}),
        OptionError,
        "'fast=1' is not {option: value}",
    ),
    "a string of backends": (lambda: delegatekit.lower(Two(), (X,), backends="one"), LoweringError, "is a string"),
    "an unknown backend": (lambda: delegatekit.lower(Two(), (X,), backends=["no"]), PluginError, "no backend 'no'"),
    "options of a stranger": (
        lambda: delegatekit.lower(Two(), (X,), backends=[], options={"no": {}}),
        LoweringError,
        "not among the backends",
    ),
    "not a model": (lambda: delegatekit.lower(print, (X,), backends=[]), LoweringError, "cannot lower"),  # type: ignore[arg-type]
    "no methods": (lambda: delegatekit.lower({}, backends=[]), LoweringError, "no methods"),
    "a method that is not a program": (
        lambda: delegatekit.lower({"forward": Two()}, backends=[]),
        LoweringError,
        "not an ExportedProgram",
    ),
    "a model that cannot be exported": (
        lambda: delegatekit.lower(_Branches(), (X,), backends=[]),
        LoweringError,
        "torch.export refused",
    ),
    "a model that returns its cache": (
        lambda: delegatekit.lower(_Cached(), (X,), backends=[]),
        LoweringError,
        r"model\.config\.use_cache = False.*lower-llm",
    ),
}


class DynamicCache:
    """As that of transformers, whose models return one: no tensor, and no container that PyTorch knows."""


class _Cached(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, DynamicCache]:
        return x + 1, DynamicCache()


class _Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_requests_are_refused_in_words(name: str) -> None:
    call, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        call()


class _NotExported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("this is work")


def test_a_missing_compiler_is_refused_before_any_work(install: Any) -> None:
    class Missing(Takes):
        @hookimpl
        def compiler_availability(self, options: Any) -> Availability:
            return Availability(False, "the tool is not installed: pip install tool")

    install(Missing("a", ["aten.sin.default"]))
    for lowered in (
        lambda model: delegatekit.lower(model, (X,), backends=["a"]),
        lambda model: delegatekit.to_backend(model, (X,), backend="a"),
    ):
        with pytest.raises(LoweringError) as refused:
            lowered(_NotExported().eval())
        assert str(refused.value) == "backend a: cannot compile here: the tool is not installed: pip install tool"

    class Sine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    assert "sin" in str(delegatekit.explain(Sine().eval(), (X,), backends=["a"])), "which compiles nothing"


def test_a_backend_that_fails_to_compile_is_named_with_its_partition(install: Any) -> None:
    backend = Takes("one", {"aten.sin.default"})
    backend.preprocess = hookimpl(lambda partition, options: 1 / 0)  # type: ignore[method-assign]
    install(backend)
    with pytest.raises(LoweringError, match=r"partition 0 of method forward for backend one.*ZeroDivisionError"):
        delegatekit.lower(Two(), (X,), backends=["one"])


# -- backends that refuse a plan ------------------------------------------------------------------------------------


class Refuses(Takes):
    """A backend with an answer about every plan, which keeps the plans."""

    def __init__(self, name: str, operators: Collection[str], answer: Any) -> None:
        super().__init__(name, operators)
        self.answer, self.plans = answer, list[MethodPlan]()

    @hookimpl
    def create_partitioner(self, options: Any) -> Any:
        found, plugin = super().create_partitioner(options), self

        def plan_reason(plan: MethodPlan) -> Any:
            plugin.plans.append(plan)
            if isinstance(plugin.answer, Exception):
                raise plugin.answer
            return plugin.answer

        found.plan_reason = plan_reason
        return found


def test_a_backend_refuses_a_plan_before_anything_is_compiled(install: Any) -> None:
    refuses, other = Refuses("one", {"aten.sin.default"}, "the moon is full"), Takes("two", {"aten.cos.default"})
    install(refuses, other)
    with pytest.raises(UnsupportedError, match=r"method forward for backend one: the moon is full"):
        delegatekit.lower(Two(), (X,), backends=["one", "two"])
    assert not refuses.seen and not other.seen
    (plan,) = refuses.plans
    assert (plan.method, plan.delegates, plan.is_whole) == ("forward", 1, False)
    assert {operator_name(node): why for node, why in plan.outside.items()} == {
        "aten.cos.default": "backend two takes it",
        "aten.mul.Tensor": "aten.mul.Tensor is not for one",
        "aten.add.Scalar": "aten.add.Scalar is not for one",
    }
    assert plan.left.startswith("3 operators: aten.cos.default (cos_default) in the top module at ")


def test_an_explanation_shows_that_the_plan_is_refused(install: Any) -> None:
    install(Refuses("one", {"aten.sin.default"}, "never"), Takes("two", ()))
    explanation = delegatekit.explain(Two(), (X,), backends=["two", "one"])
    assert explanation.refused == ("method forward for backend one: never",)
    assert str(explanation).splitlines()[-1] == "REFUSED: method forward for backend one: never"
    assert [row.backend for row in explanation.rows] == ["one", None, None, None]


def test_a_plan_of_one_delegate_is_whole(install: Any) -> None:
    takes = Refuses("one", {"aten.sin.default", "aten.cos.default", "aten.mul.Tensor", "aten.add.Scalar"}, None)
    install(takes)
    delegatekit.lower(Two(), (X,), backends=["one"])
    (plan,) = takes.plans
    assert plan.is_whole and plan.left == ""


def test_delegates_inside_control_flow_are_counted_and_the_call_is_outside(install: Any) -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    takes = Refuses("one", {"aten.sin.default", "aten.cos.default"}, None)
    install(takes)
    delegatekit.lower(Branches(), (X,), backends=["one"])
    (plan,) = takes.plans
    assert plan.delegates == 2
    assert [why for node, why in plan.outside.items() if "cond" in operator_name(node)] == [
        "control flow is the runtime's"
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [(7, "what plan_reason returned is 7"), (ValueError("oh"), "backend one failed while looking at the plan: .*oh")],
)
def test_a_wrong_answer_about_a_plan_is_the_plugins_fault(answer: Any, message: str, install: Any) -> None:
    install(Refuses("one", {"aten.sin.default"}, answer))
    with pytest.raises(PluginError, match=message):
        delegatekit.lower(Two(), (X,), backends=["one"])
