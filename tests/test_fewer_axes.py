"""Operators on more axes than a device has, on fewer: the pass against eager, and models that need it."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_module import Function
from torch import Tensor, nn
from torch.export import Dim

import delegatekit
from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.passes import OwnedPass, apply_passes
from delegatekit.plugins import get_backend
from delegatekit_api import PluginError
from delegatekit_toolkit.fewer_axes import FewerAxes

MOST = 4
aten = torch.ops.aten


def edge(function: Callable[..., Any], *inputs: Tensor, most: int = MOST, dynamic_shapes: Any = None) -> EdgeMethod:
    """The function in the edge dialect, after the pass."""
    program = torch.export.export(Function(function), inputs, dynamic_shapes=dynamic_shapes, strict=False)
    method, _ = apply_passes(build_edge(program), [OwnedPass(FewerAxes(most))], ())
    method.verify()
    return method


def operators(method: EdgeMethod) -> list[str]:
    return [call.operator.removeprefix("aten.").removesuffix(".default") for call in method.view.calls()]


def most_axes(method: EdgeMethod) -> int:
    """The most axes of a value that is computed."""
    return max(len(item.shape) for call in method.view.calls() for item in call.results)


def result(method: EdgeMethod, *inputs: Tensor) -> Tensor:
    """What the edge program computes."""
    values: dict[Any, Any] = dict(method.constants) | dict(zip(method.inputs, inputs, strict=True))
    for node in method.graph.nodes:
        if node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    found: Tensor = values[method.outputs[0]]
    return found


# -- one operator ----------------------------------------------------------------------------------------------------


def windows(x: Tensor, size: int = 2) -> Tensor:
    """The windows of images (N, H, W, C)."""
    n, h, w, c = x.shape
    return x.view(n, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size, size, c)


def test_a_window_partition_is_one_permutation_between_two_views() -> None:
    x = torch.randn(2, 4, 6, 3)
    method = edge(windows, x)
    assert operators(method) == ["view_copy", "permute_copy", "view_copy"] and most_axes(method) == 4
    assert torch.equal(result(method, x), windows(x))


def test_axes_that_stay_apart_are_permuted_step_by_step() -> None:
    def depth_to_space(x: Tensor) -> Tensor:
        n, h, w, _ = x.shape
        return x.view(n, h, w, 2, 2, -1).permute(0, 5, 1, 3, 2, 4).reshape(n, -1, 2 * h, 2 * w)

    x = torch.randn(2, 3, 5, 16)
    method = edge(depth_to_space, x)
    assert operators(method) == ["view_copy", "permute_copy", "view_copy", "permute_copy", "view_copy"]
    assert most_axes(method) == MOST
    assert torch.equal(result(method, x), depth_to_space(x))


def test_axes_may_be_added_expanded_and_joined() -> None:
    def nearest(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        return x[:, :, :, None, :, None].expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)

    x = torch.randn(1, 3, 4, 5)
    method = edge(nearest, x)
    # Two of the axes cannot be joined: (rows, 1, columns, 1).
    assert operators(method) == ["view_copy", "expand_copy", "view_copy"] and most_axes(method) == MOST
    assert torch.equal(result(method, x), nearest(x))


def test_operands_that_repeat_along_other_axes_are_read_so() -> None:
    def places(points: Tensor, offsets: Tensor, sizes: Tensor) -> Tensor:
        """The places that deformable attention looks at, of one level."""
        offsets = offsets.view(2, 7, 3, 2, 4, 2)
        return (points[:, :, None, :, None, :] + offsets / sizes[None, None, None, :, None, :])[:, :, :, 1]

    inputs = torch.randn(2, 7, 2, 2), torch.randn(2, 7, 48), torch.rand(2, 2) + 1
    method = edge(places, *inputs, most=5)
    assert most_axes(method) == 5 and "unsqueeze_copy" not in operators(method)
    torch.testing.assert_close(result(method, *inputs), places(*inputs))


def test_sizes_may_change() -> None:
    x = torch.randn(2, 4, 6, 3)
    shapes = {"inputs": (({0: Dim("n", max=9), 1: 2 * Dim("rows", max=8)}),)}
    method = edge(windows, x, dynamic_shapes=shapes)
    assert most_axes(method) == MOST
    assert [name for name in operators(method) if name.endswith("copy")] == ["view_copy", "permute_copy", "view_copy"]
    for n, rows in ((2, 2), (9, 8), (3, 5)):
        x = torch.randn(n, 2 * rows, 6, 3)
        assert torch.equal(result(method, x), windows(x))


def test_what_has_few_axes_stays_as_it_is() -> None:
    def heads(x: Tensor) -> Tensor:
        return torch.softmax(x.view(2, 5, 4, 2).permute(0, 2, 1, 3)[:, :, None].squeeze(2), -1)

    exported = torch.export.export(Function(heads), (torch.randn(2, 5, 8),), strict=False)
    method = build_edge(exported)
    same, changes = apply_passes(method, [OwnedPass(FewerAxes(5))], ())
    assert same is method and not changes


def test_what_needs_more_axes_stays_as_it_is() -> None:
    def apart(x: Tensor, y: Tensor) -> Tensor:
        return x.view(2, 1, 3, 1, 5, 1) + y

    inputs = torch.randn(30), torch.randn(1, 3, 1, 2, 1, 2)
    method = edge(apart, *inputs)
    assert operators(method) == ["view_copy", "add.Tensor"] and most_axes(method) == 6
    assert torch.equal(result(method, *inputs), apart(*inputs))


def test_a_change_names_the_operator() -> None:
    found = delegatekit.explain(
        Function(windows), (torch.randn(2, 4, 6, 3),), backends=["reference"], passes=[FewerAxes(5)]
    )
    assert str(found).startswith("changed by FewerAxes(most=5): aten.permute_copy.default (permute_copy_default)")
    assert found.changes[0].reason == "is written on at most 5 axes"


# -- any programs ------------------------------------------------------------------------------------------------------


class Chain:
    """A random chain of operators on many axes, between views of few."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.shape = [self.draw.choice((1, 1, 2, 3)) for _ in range(self.draw.randint(5, 7))]
        self.x = torch.randn(math.prod(self.shape))

    def __call__(self, x: Tensor) -> Tensor:
        draw = random.Random(self.draw.random())
        steps = [getattr(self, f"_{draw.choice(self.kinds)}") for _ in range(draw.randint(1, 6))]
        x = x.view(self.shape)
        for step in steps:
            x = step(x, draw)
        return x.reshape(-1)

    kinds = ("permuted", "shifted", "sliced", "selected", "added", "expanded", "summed", "flipped", "joined", "soft")

    def _axis(self, x: Tensor, draw: random.Random) -> int:
        return draw.randrange(-x.dim(), x.dim())

    def _permuted(self, x: Tensor, draw: random.Random) -> Tensor:
        return x.permute(draw.sample(range(x.dim()), x.dim()))

    def _shifted(self, x: Tensor, draw: random.Random) -> Tensor:
        other = [size if draw.random() < 0.5 else 1 for size in x.shape][draw.randint(0, 2) :]
        return torch.where(x > 0.5, x * 2, x + torch.linspace(-1, 1, math.prod(other)).view(other))

    def _sliced(self, x: Tensor, draw: random.Random) -> Tensor:
        axis = self._axis(x, draw)
        return x.narrow(axis, draw.randrange(x.shape[axis]), 1)

    def _selected(self, x: Tensor, draw: random.Random) -> Tensor:
        axis = self._axis(x, draw)
        return x.select(axis, draw.randrange(x.shape[axis])) if x.dim() > 5 else x

    def _added(self, x: Tensor, draw: random.Random) -> Tensor:
        return x.unsqueeze(self._axis(x, draw)) if x.dim() < 8 else x.squeeze()

    def _expanded(self, x: Tensor, draw: random.Random) -> Tensor:
        return x.expand([draw.choice((1, 2)) if size == 1 else size for size in x.shape])

    def _summed(self, x: Tensor, draw: random.Random) -> Tensor:
        keep = draw.random() < 0.7
        return x.sum([axis % x.dim() for axis in {self._axis(x, draw) % x.dim() for _ in range(2)}], keepdim=keep)

    def _flipped(self, x: Tensor, draw: random.Random) -> Tensor:
        axis = self._axis(x, draw)
        return x.flip([axis]) if draw.random() < 0.5 else x.roll(1, axis)

    def _joined(self, x: Tensor, draw: random.Random) -> Tensor:
        return torch.cat([x, x * 3], self._axis(x, draw))

    def _soft(self, x: Tensor, draw: random.Random) -> Tensor:
        return x.softmax(self._axis(x, draw))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_any_chain_of_operators_computes_the_same(seed: int) -> None:
    chain = Chain(seed)
    state = chain.draw.getstate()
    eager = chain(chain.x)
    chain.draw.setstate(state)
    method = edge(chain, chain.x)
    torch.testing.assert_close(result(method, chain.x), eager)


# -- backends that bring the pass --------------------------------------------------------------------------------------

#: Backend -> options with which it computes as exactly as it can.
BACKENDS: dict[str, dict[str, Any]] = {"coreml": {"precision": "float32"}, "qnn": {}, "vulkan": {}}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Each of them; skips where its compiler or runtime cannot work."""
    name: str = request.param
    try:
        found = get_backend(name)
    except PluginError as error:
        pytest.skip(str(error))
    for answer in (found.compiler_availability(), found.runtime_availability()):
        if not answer.available:
            pytest.skip(answer.reason)
    return name


def delegated(model: nn.Module, inputs: tuple[Tensor, ...], backend: str) -> Tensor:
    """What a backend computes, as one delegate that leaves nothing."""
    program = delegatekit.lower(model, inputs, backends=[backend], options={backend: BACKENDS[backend]})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback_calls
    found: Tensor = delegatekit.load(program.buffer)["forward"](*inputs)
    return found


def shifted(x: Tensor) -> Tensor:
    """The moves of a block of Swin: a shift of images (N, H, W, C), windows, the images again, the shift back."""
    n, h, w, c = x.shape
    x = torch.relu(windows(torch.roll(x, (-2, -2), (1, 2)), 4).flatten(1, 2))
    x = x.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
    return torch.roll(x, (2, 2), (1, 2))


def unpatchify(x: Tensor) -> Tensor:
    """Pixels of patches as images (N, C, H, W), as in masked autoencoders and diffusion transformers."""
    x = torch.einsum("nhwpqc->nchpwq", torch.relu(x).view(2, 3, 2, 4, 4, 5))
    return x.reshape(2, 5, 12, 8)


@pytest.mark.parametrize(("function", "shape"), [(shifted, (2, 8, 8, 3)), (unpatchify, (2, 6, 80))])
def test_moves_are_one_delegate_and_right(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], backend: str
) -> None:
    # Whole numbers that float16 holds: QNN's borders change the last bit of float32.
    x = torch.arange(float(math.prod(shape))).view(shape) - 50
    assert torch.equal(delegated(Function(function), (x,), backend).round(decimals=2), function(x))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["Swin", "Swinv2"])
def test_swin_is_one_delegate_and_right(name: str, backend: str) -> None:
    transformers = pytest.importorskip("transformers")
    configuration = getattr(transformers, f"{name}Config")(
        image_size=64, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )

    class States(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = getattr(transformers, f"{name}Model")(configuration)

        def forward(self, x: Tensor) -> Tensor:
            states: Tensor = self.model(x).last_hidden_state
            return states

    torch.manual_seed(0)
    model, x = States().eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        eager, halves = model(x), copy.deepcopy(model).half()(x.half()).float()
    # As exact as eager in the backend's own precision, but for the order of sums.
    exact = get_backend(backend).compute_precision(BACKENDS[backend]) == "float32"
    bound = 2e-5 * eager.abs().max() if exact else 4 * (halves - eager).abs().max()
    assert (delegated(model, (x,), backend) - eager).abs().max() <= bound
