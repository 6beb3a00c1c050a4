"""Refused calls, and the reasons in the words that users see."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import delegatekit
from delegatekit.pte.segments import data_size
from delegatekit_api import OptionError
from delegatekit_conformance.testkit import lower, refusals
from delegatekit_vulkan.ir.stock import STOCK, Form
from delegatekit_vulkan.ir.types import Layout, Storage
from delegatekit_vulkan.options import VulkanOptions
from delegatekit_vulkan.support import TABLE, VulkanPartitioner


def reasons(model, *inputs, dynamic_shapes=None, **options):
    """The reasons for refusing calls of a function."""
    partitioner = VulkanPartitioner(VulkanOptions(**options))
    return refusals(partitioner, model, *inputs, dynamic_shapes=dynamic_shapes)


X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("model", "x", "part"),
    [
        (lambda x: x + 1, X.double(), "float64: GPUs compute in 32 bits"),
        (lambda x: x + 1, X.to(torch.int8), "int8: float32, float16, int32, int64 and bool are taken"),
        (lambda x: x + 1, X.to(torch.uint8), "uint8"),
        (lambda x: x + 1, X.to(torch.int16), "int16"),
        (lambda x: x + 1, X.to(torch.bfloat16), "bfloat16"),
        (lambda x: x & 3, torch.arange(4), "bitwise_and.Scalar"),
        (lambda x: x + torch.tensor([2**31]), torch.arange(4), "2147483648: the device computes in 32 bits"),
        (lambda x: x * 2**40, torch.arange(4), "other = 1099511627776: the device computes in 32 bits"),
        (lambda x: x * 2.0**17, X.half(), "other = 131072.0: the device computes in float16"),
        (lambda x: torch.nn.functional.elu(x, 1e5), X.half(), "alpha = 100000.0: the device computes in float16"),
        (lambda x: x * x, torch.arange(4), "a product of int64 tensors may leave the 32 bits"),
        (lambda x: x**3, torch.arange(4), "a product of int64 tensors may leave the 32 bits"),
        (lambda x: x % 3.0, X, "other = 3.0: a power of two is taken"),
        (lambda x: torch.where(x > 0, x, 0), torch.randn(1, 1, 1, 1, 2), "5 axes: the runtime takes 4"),
        (lambda x: x + 1, torch.randn((1,) * 9), "9 axes: the runtime takes 8"),
        (lambda x: x.flip(0), torch.randn(1, 1, 1, 2, 2), "5 axes"),
        (lambda x: torch.any(x, dim=()), X > 0, "dim is empty"),
        (torch.erfinv, X, "is not in the backend's operator table"),
    ],
)
def test_reasons_name_what_is_wrong(model, x, part):
    found = reasons(model, x)
    assert any(part in reason for reason in found), found


def test_tensors_beyond_the_buffers_of_a_target_are_refused():
    assert reasons(lambda x: x + 1, X, buffer_limit=47)[0].endswith("has 48 bytes: 47 are the most on phone-large")
    assert reasons(lambda x: x + 1, X, buffer_limit=48) == []
    assert reasons(lambda x: x + 1, X, buffer_limit=24, fp16=True) == []


@pytest.mark.parametrize(("scheme", "size"), [("int8-weight-only", 64 * 96), ("int4-weight-only", 64 * 48)])
def test_weights_are_counted_as_the_integers_that_they_stay(scheme, size):
    samples = [(torch.randn(2, 96),)]
    model = delegatekit.quantize(torch.nn.Linear(96, 64).eval(), samples, backend="vulkan", scheme=scheme)
    assert reasons(model, *samples[0], buffer_limit=size) == []
    for reason in reasons(model, *samples[0], buffer_limit=size - 1):
        assert reason.endswith(f"has {size} bytes: {size - 1} are the most on phone-large")
    program = delegatekit.lower(model, samples[0], backends=["vulkan"], options={"vulkan": {"buffer_limit": size}})
    assert size in {data_size(item.data) for item in program.image.named_data}
    changing = ({0: Dim("rows", min=1, max=8)},)
    kept = reasons(model, *samples[0], dynamic_shapes=changing, buffer_limit=size)
    assert (kept == []) == (scheme == "int8-weight-only")


def test_tensors_beyond_the_textures_of_a_target_are_refused_where_there_must_be_a_texture():
    x = torch.zeros(2, 4000)
    assert reasons(lambda x: x.flip(0), x) == []
    (reason,) = reasons(lambda x: x.flip(0), x, target="phone-small")
    assert reason.endswith("(2, 4000) exceeds the textures of phone-small: (2048, 2048, 2048)")
    assert reasons(lambda x: -x, x, target="phone-small") == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (lambda x: (x * 2).repeat(2, 1), "aten.repeat.default"),
        (lambda x: (x * 2).flip(1), "aten.flip.default"),
        (lambda x: (x * 2).view(-1, 1, 2, 1, 2).expand(-1, 3, -1, 3, -1), "aten.expand_copy.default"),
    ],
)
def test_operators_that_are_computed_for_one_size_are_refused_for_changing_ones(model, name):
    dynamic = (({0: Dim("n", max=9)},),)
    assert reasons(model, X, dynamic_shapes=dynamic) == [
        f"the runtime on the device computes {name} for the same sizes in every call"
    ]
    assert reasons(model, X) == []
    (reason,) = reasons(model, X, require_dynamic_shapes=True)
    assert reason == f"{name} is computed for the same sizes in every call (require_dynamic_shapes is set)"


@pytest.mark.parametrize("model", [lambda x: x.clamp(max=x.shape[0]), lambda x: x.add(x, alpha=x.shape[0])])
def test_numbers_that_the_runtime_reads_once_are_not_computed_from_sizes(model):
    reason = reasons(model, X, dynamic_shapes=(({0: Dim("rows", max=9)},),))[-1]
    assert reason.endswith("is a number that is computed from sizes")


def test_numbers_are_computed_from_sizes_by_functions_of_the_runtime():
    reason = reasons(lambda x: x * (1 / x.shape[0]), X, dynamic_shapes=(({0: Dim("rows", max=9)},),))[-1]
    assert reason.startswith("a number is computed by")


def test_int64_is_multiplied_by_constants_and_truth_values():
    scale = torch.arange(4)
    assert reasons(lambda x: x * 3 * scale * (x > 1).to(torch.int64) * (x > 2), torch.arange(4)) == []
    assert reasons(lambda x: x * x, torch.arange(4, dtype=torch.int32)) == []


def test_sizes_without_a_bound_are_refused():
    found = reasons(lambda x: x + 1, X, dynamic_shapes=(({0: Dim("n")},),))
    assert found and "without an upper bound" in found[0]


def test_moves_alone_are_no_delegate():
    lowered = lower(lambda x: x.mT.reshape(2, 6)[1:], X, backend="vulkan", whole=False)
    assert lowered.delegates == ()


def test_operators_are_left_out():
    assert reasons(lambda x: x.exp() + 1, X, leave_out=frozenset({"exp"})) == ["left out by the option leave_out"]
    with pytest.raises(OptionError, match="'unknown'"):
        VulkanPartitioner(VulkanOptions(leave_out=frozenset({"unknown"})))


def test_every_condition_is_documented():
    for constraint in (*TABLE.common, *(item for entry in TABLE.values() for item in entry.constraints)):
        assert (constraint.__doc__ or "").strip(), constraint


def test_rows_name_operators_of_the_runtime():
    for name, entry in TABLE.items():
        runs = entry.facts.get("runs") or ()
        # A function chooses among them, where the operator of the same name is one.
        assert name in STOCK if callable(runs) else set(runs) <= set(STOCK), name


def test_textures_hold_what_their_texels_hold():
    limits = (16, 16, 8)
    assert Form(Storage.TEXTURE_3D, Layout.WIDTH_PACKED).fits((64,), limits)
    assert not Form(Storage.TEXTURE_3D, Layout.WIDTH_PACKED).fits((65,), limits)
    assert Form(Storage.TEXTURE_3D, Layout.CHANNELS_PACKED).fits((2, 16, 16, 16), limits)
    assert not Form(Storage.TEXTURE_3D, Layout.CHANNELS_PACKED).fits((3, 16, 16, 16), limits)
    assert not Form(Storage.TEXTURE_3D, Layout.CHANNELS_PACKED).fits((1, 1, 1, 1, 1), limits)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (lambda x: torch.nn.functional.avg_pool2d(x, 256), torch.zeros(1, 1, 256, 256)),
        (lambda x: torch.nn.functional.max_pool2d(x, 256), torch.zeros(1, 1, 256, 256)),
        (torch.nn.AdaptiveAvgPool2d((1, 2)), torch.zeros(1, 1, 256, 512)),
        (torch.nn.Conv2d(2, 1, 200), torch.zeros(1, 2, 200, 200)),
        (torch.nn.Conv1d(1, 1, 30_000, padding=15_000), torch.zeros(1, 1, 16)),
        (torch.nn.Linear(250_000, 1), torch.zeros(1, 250_000)),
    ],
)
def test_sums_longer_than_all_drivers_compute_are_refused(model, x):
    assert any("are the most that all drivers compute" in reason for reason in reasons(model, x))
