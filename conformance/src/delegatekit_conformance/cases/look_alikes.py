"""Programs that are easily confused, and a long one with many constants: for rules about compilers."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..recipe import Recipe, Ref, TensorRecipe
from .specimens import recipe_of, tensor_of

_X = Ref("x")
#: Layers of the long program.
_LAYERS = 9


def look_alikes() -> Mapping[str, Recipe]:
    """Pairs that differ in a number, a dim, a dtype, or the last of many rows of a constant."""
    found = {}
    for factor, term in ((2.0, 3.0), (-5.0, 0.25)):
        found[f"x * {factor} + {term}"] = recipe_of(
            {"x": tensor_of(3, 10)},
            ("m", "aten.mul.Tensor", _X, factor),
            ("a", "aten.add.Tensor", Ref("m"), term),
            depth=2,
        )
    for dim in (-1, 0):
        found[f"softmax over dimension {dim}"] = recipe_of(
            {"x": tensor_of(6, 6)}, ("s", "aten.softmax.int", _X, dim), reduction_length=6, depth=3
        )
    for dtype in ("float32", "int32"):
        numbers = {
            name: tensor_of(4, 5, dtype=dtype, values=("integers", -9, 9), seed=i) for i, name in enumerate("xy")
        }
        found[f"products of {dtype}"] = recipe_of(numbers, ("m", "aten.mul.Tensor", _X, Ref("y")), exact=True)
    found["products with constants that differ in their last row"] = _late_rows("aten.mul.Tensor", 41)
    found["layers whose weights differ in their last row"] = _late_rows("aten.linear.default", 4)
    found["integers that stand for several numbers"] = _integers()
    return found


def _integers() -> Recipe:
    """Integers that two scales read, that are computed with, of 32 bits, and with scales for rows and for groups."""
    target = "quantized_decomposed.{}.default".format
    read, byte = target("dequantize_per_tensor"), (-128, 127, torch.int8)
    return recipe_of(
        {
            "x": tensor_of(3, 16, dtype="int8", values=("integers", -7, 7)),
            "y": tensor_of(3, 4, dtype="int8", values=("integers", -7, 7), seed=1),
            "z": tensor_of(3, 4, dtype="int8", values=("integers", -7, 7), seed=2),
            "wide": tensor_of(3, 4, dtype="int32", values=("integers", -999, 999), seed=4),
            "scales": tensor_of(3, values=("literal", (1 / 8, 1 / 16, 1 / 8)), constant=True),
            "zeros": tensor_of(3, dtype="int64", values=("literal", (0, 0, 0)), constant=True),
            "w": tensor_of(2, 16, dtype="int8", values=("integers", -2, 2), constant=True, seed=3),
            "steps": tensor_of(2, 2, values=("literal", (1 / 4, 1 / 8, 1 / 2, 1 / 4)), constant=True),
            "none": tensor_of(2, 2, dtype="int8", values=("literal", (0, 0, 0, 0)), constant=True),
        },
        ("a", read, _X, 1 / 8, 0, *byte),
        ("b", read, _X, 1 / 4, 2, *byte),
        ("s", "aten.add.Tensor", Ref("a"), Ref("b")),
        ("c", read, Ref("y"), 1 / 8, 0, *byte),
        ("n", "aten.add.Tensor", Ref("y"), 1),
        ("d", read, Ref("wide"), 1 / 8, 0, -(2**31), 2**31 - 1, torch.int32),
        ("e", target("dequantize_per_channel"), *map(Ref, ("z", "scales", "zeros")), 0, *byte),
        ("g", target("dequantize_per_channel_group"), *map(Ref, ("w", "steps", "none")), *byte, 8, torch.float32),
        ("l", "aten.linear.default", Ref("a"), Ref("g")),
        outputs=tuple(map(Ref, "scndel")),
        exact=True,
    )


def _late_rows(operator: str, rows: int) -> Recipe:
    """Two constants of 41 rows whose first 40 are the same; PyTorch folds them together at lowering."""
    tensors = {
        "x": tensor_of(rows, 32),
        "w": tensor_of(40, 32, constant=True, seed=1),
        "first": tensor_of(1, 32, constant=True, seed=2),
        "second": tensor_of(1, 32, constant=True, seed=3),
    }
    return recipe_of(
        tensors,
        ("a", "aten.cat.default", (Ref("w"), Ref("first")), 0),
        ("b", "aten.cat.default", (Ref("w"), Ref("second")), 0),
        ("p", operator, _X, Ref("a")),
        ("q", operator, _X, Ref("b")),
        outputs=(Ref("p"), Ref("q")),
        reduction_length=32,
    )


def _chain() -> Recipe:
    """Layers one after the other, each with two constants of its own and operators of several kinds."""
    tensors: dict[str, TensorRecipe] = {"x": tensor_of(4, 16)}
    steps: list[tuple[object, ...]] = []
    value = _X
    for layer in range(_LAYERS):
        tensors[f"w{layer}"] = tensor_of(16, 16, constant=True, seed=2 * layer + 1)
        tensors[f"c{layer}"] = tensor_of(16, constant=True, seed=2 * layer + 2)
        steps.append((f"l{layer}", "aten.linear.default", value, Ref(f"w{layer}")))
        steps.append((f"s{layer}", "aten.sigmoid.default", Ref(f"l{layer}")))
        steps.append((f"m{layer}", "aten.mul.Tensor", Ref(f"s{layer}"), Ref(f"c{layer}")))
        value = Ref(f"m{layer}")
    return recipe_of(tensors, *steps, reduction_length=16, depth=3 * _LAYERS)


#: A chain of 27 operators and 18 constants: each operator reads the result of the one before.
CHAIN = _chain()
