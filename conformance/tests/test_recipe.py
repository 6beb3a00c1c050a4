"""Recipes: the same numbers everywhere, and Python code that reproduces them without the suite."""

from __future__ import annotations

import contextlib
import io
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from delegatekit_conformance.recipe import LAYOUTS, Recipe, Ref, Size, Step, TensorRecipe, find_target, tensor_code
from delegatekit_conformance.trial import Subject
from delegatekit_toolkit.accuracy.script import with_bound

KINDS = [
    ("normal",),
    ("uniform", 1.0, 2.0),
    ("integers", -3, 3),
    ("distinct",),
    ("special",),
]


def recipe(**more: Any) -> Recipe:
    """x0 * weight + alpha * split(x0): constants, several results, keyword arguments, lists."""
    tensors = (
        ("x0", TensorRecipe((4, 6))),
        ("x1", TensorRecipe((6,), constant=True, seed=1)),
        ("x2", TensorRecipe((4, 3), layout="transposed", seed=2)),
    )
    steps = (
        Step("y0", "aten.mul.Tensor", (Ref("x0"), Ref("x1"))),
        Step("y1", "aten.split_with_sizes.default", (Ref("y0"), (3, 3), 1)),
        Step("y2", "aten.add.Tensor", (Ref("y1", 1), Ref("x2")), (("alpha", 2.0),)),
    )
    return Recipe(tensors, steps, (Ref("y2"), Ref("y1", 0)), **more)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (5, 4), (2, 3, 4, 2), (1, 2, 3, 2, 2)], ids=str)
def test_the_code_of_a_tensor_makes_the_tensor(kind: Any, layout: str, shape: tuple[int, ...]) -> None:
    for dtype in ("float32", "bfloat16", "int32"):
        if dtype == "int32" and kind[0] in ("special", "normal", "uniform"):
            continue
        tensor = TensorRecipe(shape, dtype, kind, layout, seed=3)
        made, code = tensor.make(), tensor_code(tensor)
        other = eval(code, {"torch": torch})
        assert made.shape == other.shape == shape and made.dtype == other.dtype and made.stride() == other.stride()
        assert torch.equal(made.nan_to_num(7.0), other.nan_to_num(7.0)) or made.dtype.is_floating_point
        torch.testing.assert_close(made, other, equal_nan=True, rtol=1e-6, atol=0)


def test_numbers_that_are_none_keep_their_bits() -> None:
    bits = (0x3F800000, 0x7F800001, 0xFFC00000, 0x7F800000)
    tensor = TensorRecipe((2, 2), values=("bits", bits))
    for made in (tensor.make(), eval(tensor_code(tensor), {"torch": torch})):
        assert made.dtype == torch.float32 and made.isnan().tolist() == [[False, True], [True, False]]
        assert tuple(made.flatten().view(torch.uint32).tolist()) == bits


def test_layouts_are_what_they_say() -> None:
    assert TensorRecipe((2, 3, 4, 5), layout="channels_last").make().stride() == (60, 1, 15, 3)
    assert TensorRecipe((4, 5), layout="transposed").make().stride() == (1, 4)
    assert TensorRecipe((4, 5), layout="strided").make().stride() == (10, 2)
    assert TensorRecipe((4, 5), layout="expanded").make().stride() == (0, 1)


def test_equal_recipes_give_equal_numbers_in_every_process() -> None:
    made = recipe().inputs()[0]
    code = (
        "import pickle, sys; from delegatekit_conformance.recipe import *; "
        "print(pickle.loads(sys.stdin.buffer.read()).inputs()[0].tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(recipe()), capture_output=True, check=True)
    assert done.stdout.decode().strip() == str(made.tolist())


def test_the_module_computes_the_steps() -> None:
    module, inputs = recipe().module(), recipe().inputs()
    weight = module.get_buffer("x1")
    first, second = (inputs[0] * weight).split([3, 3], 1)
    total, left = module(*inputs)
    torch.testing.assert_close(total, second + 2.0 * inputs[1])
    torch.testing.assert_close(left, first)
    assert not module.training
    recipe().export()


def test_a_program_is_kept_with_its_recipe_alone() -> None:
    made = recipe()
    assert made.program is made.program
    assert "program" not in vars(pickle.loads(pickle.dumps(made))) and pickle.loads(pickle.dumps(made)) == made
    subject = Subject.of_recipe(made)
    subject.module.get_buffer("x1").zero_()
    _, left = subject.program.module()(*made.inputs())
    assert not left.any(), "of a module that was changed, the program is another one"


def test_the_snippet_shows_the_same_without_the_suite() -> None:
    text = recipe().snippet("reference")
    assert "delegatekit_conformance" not in text
    scope: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(text, scope)
    assert "1 delegate runs" in printed.getvalue()
    expected = recipe().module()(*recipe().inputs())
    torch.testing.assert_close(scope["module"](*scope["inputs"]), expected)
    torch.testing.assert_close(tuple(scope["method"](*scope["inputs"])), tuple(expected))


def test_the_snippet_of_changing_sizes_makes_the_further_calls() -> None:
    tensors = (("x0", TensorRecipe((4, 3))), ("x1", TensorRecipe((4, 3), seed=1)))
    steps = (Step("y0", "aten.sub.Tensor", (Ref("x0"), Ref("x1"))),)
    sizes = (Size("rows", 2, 8, (("x0", 0), ("x1", 0))),)
    changing = Recipe(tensors, steps, (Ref("y0"),), sizes=sizes, calls=((2,), (8,)))
    assert [value.shape for value in changing.inputs((8,))] == [(8, 3), (8, 3)]
    changing.export()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(changing.snippet("reference"), {})
    lines = printed.getvalue().splitlines()
    assert sum(line.startswith("output 0: largest error ") for line in lines) == 3, "one for each call"


def test_a_description_has_one_line_with_shapes_and_what_is_special() -> None:
    text = recipe().describe()
    assert "float32[4, 6]" in text and "float32[4, 3] transposed" in text and "alpha=2.0" in text and "\n" not in text


def test_an_unknown_kind_of_values_or_target_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        TensorRecipe((2,), values=("odd",)).make()
    with pytest.raises(AttributeError, match="begins with aten, quantized_decomposed, torchao or torch"):
        find_target("os.system")


def test_a_quantized_program_names_the_module_of_its_operators() -> None:
    numbers = Step("f", "quantized_decomposed.dequantize_per_tensor.default", (Ref("x"), 0.5, 1, -128, 127, torch.int8))
    integers = TensorRecipe((2, 3), dtype="int8", values=("integers", -9, 9))
    quantized = Recipe((("x", integers),), (numbers,), (Ref("f"),), exact=True)
    assert torch.equal(quantized.module()(*quantized.inputs()), (integers.make() - 1) * 0.5)
    text = quantized.snippet("reference")
    assert "import torch.ao.quantization.fx._decomposed\n" in text and "torch.ops.quantized_decomposed" in text
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(text, {})
    assert "output 0: largest error 0, " in printed.getvalue()


def test_a_script_prints_what_was_judged() -> None:
    text = with_bound(recipe().snippet("reference"), 3e-6)
    scope: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(text, scope)
    assert "(bound: 3e-06), signal to noise" in printed.getvalue()
    right = torch.tensor([4.0, -2.0, torch.inf, torch.nan])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        scope["compare"](torch.tensor([4.0, -2.004, torch.nan, torch.nan]), right.double(), 1e-6)
        scope["compare"]((torch.zeros(2),), [torch.zeros(3)], 1e-6)
    assert printed.getvalue().splitlines() == [
        "output 0: largest error 0.004, relative to the largest value 0.001 (bound: 1e-06), signal to noise 61.0 dB, "
        "1 elements not finite in one only",
        "output 0: shape (2,) instead of (3,)",
    ]


def test_numbers_that_python_cannot_write_are_written_as_calls() -> None:
    steps = (Step("y0", "aten.clamp.default", (Ref("x0"), float("-inf"), float("nan"))),)
    text = replace(recipe(), steps=steps, outputs=(Ref("y0"),)).snippet("reference")
    assert 'float("-inf"), float("nan")' in text
