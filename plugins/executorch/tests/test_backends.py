"""ExecuTorch's own backends: listed without being imported, each right where it runs, each refusal with its reason."""

from __future__ import annotations

import logging
import warnings
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime

import delegatekit
from delegatekit.plugins import BACKEND_GROUP, get_backend
from delegatekit_api import LoweringError, OptionError
from delegatekit_conformance.cases.quantized import judge
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_executorch_backends.targets import SYSTEMS
from delegatekit_toolkit.accuracy import estimate, tolerance

#: Backends whose compiler needs nothing more than the wheel and what the development environment has.
RUNNING = ("executorch.xnnpack", "executorch.vulkan", "executorch.webgpu", "executorch.coreml", "executorch.mlx")
#: Their quantizers, and the options that these need.
QUANTIZED = (
    *(("executorch.xnnpack", scheme, {}) for scheme in ("int8", "int8-per-tensor", "int8-dynamic")),
    *(("executorch.vulkan", scheme, {}) for scheme in ("int8-weights", "int8-dynamic", "int4-weights")),
    ("executorch.coreml", "int8", {"target": "iOS17"}),
    ("executorch.ethosu", "int8", {}),
)


class TestPlugin(PluginTests):
    backend, delegate_id = "executorch.xnnpack", "XnnpackBackend"
    wrong_options = ({"precisions": "int4"}, {"per_op_mode": "perhaps"}, {"unknown": 1})

    def test_the_documentation_has_a_row_for_each_operator(self) -> None:
        """Has none: ExecuTorch's partitioners answer for programs, and have no tables."""
        assert get_backend(self.backend).documentation().operators is None


def test_every_partitioner_of_the_wheel_is_a_backend() -> None:
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations
    (folder, *_) = spec.submodule_search_locations
    root = Path(folder) / "backends"
    found = {
        path.relative_to(root.parent.parent).with_suffix("").as_posix().replace("/", ".")
        for path in root.rglob("*partitioner*.py")
        if not {"test", "tests"} & set(path.parts) and "_partition" not in path.stem.removesuffix("_partitioner")
    }
    listed = {system.partitioner.partition(":")[0] for system in SYSTEMS.values()}
    # AOTInductor's is the base of those for CUDA and Metal.
    assert found - listed == {"executorch.backends.aoti.aoti_partitioner"}


def test_every_backend_is_an_entry_point_and_describes_itself() -> None:
    ours = {entry.name for entry in entry_points(group=BACKEND_GROUP) if entry.name.startswith("executorch.")}
    assert ours == set(SYSTEMS)
    for name, system in SYSTEMS.items():
        assert get_backend(name).description.delegate_id == system.delegate_id


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("executorch.mediatek", "neuropilot.mediatek.com"),
        ("executorch.samsung", "AI LiteCore"),
        ("executorch.nxp", "eiq-neutron-sdk"),
        ("executorch.mps", "has no executorch.backends.apple.mps"),
        ("executorch.cadence", "Xtensa"),
        ("executorch.cuda", "CUDA"),
    ],
)
def test_a_backend_that_cannot_compile_here_says_what_is_missing(name: str, words: str) -> None:
    backend = get_backend(name)
    available = backend.compiler_availability()
    if name == "executorch.cuda" and "Triton" in available.reason:
        words = "pytorch.org"
    assert not available.available and words in available.reason
    with pytest.raises(LoweringError, match=r"cannot (compile|work) here"):
        delegatekit.lower(torch.nn.ReLU(), (torch.ones(2),), backends=[name])


@pytest.mark.parametrize("name", RUNNING)
def test_a_network_is_lowered_and_right(name: str, network: torch.nn.Module, image: torch.Tensor) -> None:
    _works(name)
    weights = {key: value.clone() for key, value in network.state_dict().items()}
    program = delegatekit.lower(network, (image,), backends=[name])
    (method,) = program.methods.values()
    assert method.delegates
    with torch.no_grad():
        eager = network(image)
    precision = get_backend(name).compute_precision()
    bound = tolerance("float32", precision, estimate(torch.export.export(network, (image,))).reduction_length)
    found = delegatekit.load(program.buffer)["forward"](image)
    torch.testing.assert_close(found, eager, rtol=0, atol=bound * float(eager.abs().max()))
    assert all(torch.equal(value, weights[key]) for key, value in network.state_dict().items())


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "scheme", "options"), QUANTIZED)
def test_stocks_quantizer_gives_delegates_that_compute_in_integers(
    name: str, scheme: str, options: dict[str, str], network: torch.nn.Module, image: torch.Tensor
) -> None:
    _works(name)
    offered = [found.name for found in get_backend(name).quantization_schemes(get_backend(name).make_options(options))]
    assert scheme in offered
    quantized = delegatekit.quantize(network, [(image,)], backend=name, scheme=scheme, options=options)
    program = delegatekit.lower(quantized, (image,), backends=[name], options={name: options})
    (method,) = program.methods.values()
    inside = [str(node.target) for delegate in method.delegates for node in delegate.partition.nodes]
    assert any("dequantize_" in target for target in inside)
    assert not any("convolution" in node.name or "linear" in node.name for node in method.plan.fallback)
    with torch.no_grad():
        assert judge(delegatekit.load(program.buffer)["forward"](image), quantized(image), None).agrees


def test_a_scheme_that_the_options_rule_out_is_refused() -> None:
    backend = get_backend("executorch.coreml")
    assert not backend.quantization_schemes(backend.make_options({"target": "iOS16"}))
    with pytest.raises(OptionError, match="there is no scheme int8 with these options"):
        backend.create_quantizer("int8", backend.make_options({}))


def _works(name: str) -> None:
    """Skip unless the backend compiles and runs here."""
    backend = get_backend(name)
    for available in (backend.compiler_availability(), backend.runtime_availability()):
        if not available.available:
            pytest.skip(available.reason)


def test_a_refusal_has_the_partitioners_reason(network: torch.nn.Module, image: torch.Tensor) -> None:
    said = delegatekit.explain(network, (image,), backends=["executorch.xnnpack"])
    (mean,) = [row for row in said.rows if row.operator == "aten.mean.dim"]
    assert "keep_dims" in mean.reasons["executorch.xnnpack"] or "keepdim" in mean.reasons["executorch.xnnpack"]


def test_logging_is_left_as_it_was(network: torch.nn.Module, image: torch.Tensor) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    delegatekit.lower(network, (image,), backends=["executorch.xnnpack"])
    assert (root.level, root.handlers) == before


def test_warnings_of_partitioners_are_not_shown(
    network: torch.nn.Module, image: torch.Tensor, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock's Vulkan exports patterns while it partitions, for which PyTorch warns."""
    partitioner = pytest.importorskip("executorch.backends.xnnpack.partition.xnnpack_partitioner").XnnpackPartitioner
    real = partitioner.partition

    def warning(self: object, program: object) -> object:
        warnings.warn("isinstance(treespec, LeafSpec) is deprecated", FutureWarning, stacklevel=1)
        return real(self, program)

    monkeypatch.setattr(partitioner, "partition", warning)
    assert delegatekit.lower(network, (image,), backends=["executorch.xnnpack"]).methods["forward"].delegates
    assert not [item for item in recwarn if "LeafSpec" in str(item.message)]


def test_vulkans_patterns_are_exported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _works("executorch.vulkan")
    registry = pytest.importorskip("executorch.backends.vulkan.patterns.pattern_registry")
    made: list[int] = []

    def graphs() -> list[torch.fx.GraphModule]:
        made.append(1)
        return []

    entry = registry.PatternEntry(get_graphs_fn=graphs, create_replacement_fn=lambda *given: None)
    monkeypatch.setitem(registry.fusable_patterns, "counted", entry)
    for _ in range(2):
        program = delegatekit.lower(torch.nn.Linear(4, 4).eval(), (torch.ones(1, 4),), backends=["executorch.vulkan"])
        assert program.methods["forward"].delegates
    assert len(made) == 1


def test_one_partition_for_each_operator_with_what_is_fused_or_as_few_as_possible() -> None:
    def delegates(**options: bool) -> int:
        model, x = (
            torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Sigmoid()).eval(),
            torch.ones(2, 4),
        )
        program = delegatekit.lower(
            model, (x,), backends=["executorch.xnnpack"], options={"executorch.xnnpack": options}
        )
        return sum(len(method.delegates) for method in program.methods.values())

    assert (delegates(), delegates(per_op_mode=True), delegates(per_op_mode=True, merge=True)) == (1, 2, 1)


def test_compare_works_on_it(network: torch.nn.Module, image: torch.Tensor) -> None:
    found = delegatekit.compare(network, (image,), backends=["executorch.xnnpack"])
    assert found.backends == ("executorch.xnnpack",) and found.right


class Scalars(torch.nn.Module):
    """Numbers, and a parameter without dimensions, beside tensors without any."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.tensor(0.25))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Without dimensions, as the inputs."""
        return torch.addcmul(x + 2.0, y, x * self.slope, value=0.5) - y / 3.0


@pytest.mark.parametrize("merge", [False, True])
def test_constants_that_the_partitioner_leaves_outside_are_inputs_of_the_delegate(merge: bool) -> None:
    model, x = Scalars().eval(), (torch.tensor(3.0), torch.tensor(-1.5))
    program = delegatekit.lower(
        model, x, backends=["executorch.xnnpack"], options={"executorch.xnnpack": {"merge": merge}}
    )
    (method,) = program.methods.values()
    (delegate,) = method.delegates
    assert not method.plan.fallback and not delegate.partition.constants
    assert len(delegate.partition.inputs) == 2 + 4
    found = delegatekit.load(program.buffer)["forward"](*x)
    torch.testing.assert_close(found, model(*x))
    held = program.buffer  # the runtime reads it where it is
    (stock,) = Runtime.get().load_program(held).load_method("forward").execute(x)
    assert stock.shape == ()
    torch.testing.assert_close(stock, model(*x))


@pytest.mark.parametrize(
    ("function", "x", "becomes"),
    [
        (lambda x: x + 2.5, torch.ones(3), True),
        (lambda x: x * 7, torch.ones(3, dtype=torch.int32), True),
        (lambda x: x / 2, torch.ones(3, dtype=torch.int64), False),
        (lambda x: x * 0.1, torch.ones(3, dtype=torch.float16), False),
        (lambda x: x + 2**40, torch.ones(3, dtype=torch.int64), True),
    ],
)
def test_numbers_become_constants_only_where_that_changes_no_result(
    function: Any, x: torch.Tensor, becomes: bool
) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = function(x)
            return found

    said = delegatekit.explain(Model(), (x,), backends=["executorch.xnnpack"])
    assert bool(said.changes) is becomes
    program = delegatekit.lower(Model(), (x,), backends=["executorch.xnnpack"])
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize(("shape", "bias"), [((2, 4), True), ((4,), False), ((1, 3, 4), True), ((2, 1, 3, 4), False)])
def test_a_linear_layer_reaches_partitioners_as_a_product_unless_they_ask_for_it(
    shape: tuple[int, ...], bias: bool
) -> None:
    _works("executorch.vulkan")
    backend = get_backend("executorch.vulkan")
    assert "aten.linear.default" not in backend.create_partitioner(backend.make_options({})).keep_operators()
    model, x = torch.nn.Linear(4, 8, bias=bias).eval(), torch.randn(shape)
    program = delegatekit.lower(model, (x,), backends=["executorch.vulkan"])
    (method,) = program.methods.values()
    assert len(method.delegates) == 1 and not method.plan.fallback
    found, eager = delegatekit.load(program.buffer)["forward"](x), model(x).detach()
    bound = tolerance("float32", backend.compute_precision(), x.shape[-1])
    torch.testing.assert_close(found, eager, rtol=0, atol=bound * float(eager.abs().max()))
