"""Small programs that the contract and robustness cases ask a backend about, compiled and opened up to its delegates.

A specimen is a recipe; a sample is a delegate that the backend made of one: the partition it was compiled from, the
payload that its runtime gets and the tensors of one call, recorded while the engine ran the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch.export import ExportedProgram

import delegatekit
from delegatekit import LoweredProgram
from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.engine.delegate import delegate_program
from delegatekit.lowering import Delegate, partition_program
from delegatekit.plugins import LoadedBackend, discovery
from delegatekit.pte import read, to_bytes
from delegatekit.pte.dtypes import scalar_type
from delegatekit_api import (
    Availability,
    BackendDescription,
    DelegatePayload,
    NamedData,
    OptionError,
    PartitionProgram,
    PreprocessResult,
)

from ..context import Context
from ..insides import bits
from ..outcome import Outcome
from ..recipe import Recipe, Ref, Size, Step, TensorRecipe
from ..trial import try_recipe, words
from .base import Broken, NotApplicable


def recipe_of(
    tensors: Mapping[str, TensorRecipe], *steps: tuple[Any, ...], outputs: tuple[Ref, ...] = (), **more: Any
) -> Recipe:
    """A recipe. Steps are (name, target, *arguments); the last one's result is returned unless `outputs` is given.

    A mapping at the end of a step's arguments has those with names.
    """
    made = []
    for name, target, *rest in steps:
        named = rest.pop() if rest and isinstance(rest[-1], Mapping) else {}
        made.append(Step(name, target, tuple(rest), tuple(named.items())))
    return Recipe(tuple(tensors.items()), tuple(made), outputs or (Ref(made[-1].name),), **more)


def tensor_of(*shape: int, constant: bool = False, seed: int = 0, **more: Any) -> TensorRecipe:
    """A tensor of a recipe: an input, or a constant."""
    return TensorRecipe(shape, constant=constant, seed=seed, **more)


_X, _Y = Ref("x"), Ref("y")


def _numbers(name: str, scale: float, zero_point: int = 0) -> tuple[Any, ...]:
    """The step that makes numbers of the int8 tensor `name`; its result is called `name` followed by "f"."""
    return f"{name}f", f"{_QUANTIZED}.dequantize_per_tensor.default", Ref(name), scale, zero_point, *_INT8


def _channels(name: str, scales: str, zeros: str, axis: int) -> tuple[Any, ...]:
    """As `_numbers`, with a scale and a zero point for each channel along an axis."""
    return f"{name}f", f"{_QUANTIZED}.dequantize_per_channel.default", *map(Ref, (name, scales, zeros)), axis, *_INT8


def _integers(name: str, scale: float, zero_point: int = 0) -> tuple[Any, ...]:
    """The step that makes int8 of a result; its own is called `name` followed by "q"."""
    return f"{name}q", f"{_QUANTIZED}.quantize_per_tensor.default", Ref(name), scale, zero_point, *_INT8


_ATTENTION = "aten.scaled_dot_product_attention.default"
_QUANTIZED = "quantized_decomposed"
_INT8 = (-128, 127, torch.int8)
_X_NUMBERS, _Y_NUMBERS, _W_NUMBERS = Ref("xf"), Ref("yf"), Ref("wf")


def _small(*shape: int, most: int = 3, **more: Any) -> TensorRecipe:
    return tensor_of(*shape, dtype="int8", values=("integers", -most, most), **more)


#: Quantized programs of integers, for backends that have nothing else. Scales are powers of two, and every result is a
#: whole number of steps within int8: a backend's rounding does not matter, and no difference is excused.
QUANTIZED_SPECIMENS: Mapping[str, Recipe] = {
    "quantized arithmetic": recipe_of(
        {"x": _small(1, 4, 6, most=7), "y": _small(1, 4, 6, most=7, seed=1)},
        _numbers("x", 1 / 8, 2),
        _numbers("y", 1 / 16),
        ("a", "aten.add.Tensor", _X_NUMBERS, _Y_NUMBERS),
        _integers("a", 1 / 16, -3),
        _numbers("aq", 1 / 16, -3),
        ("m", "aten.mul.Tensor", Ref("aqf"), Ref("aqf")),
        _integers("m", 1 / 256, -128),
        outputs=(Ref("aq"), Ref("mq")),
        exact=True,
    ),
    "quantized linear": recipe_of(
        {"x": _small(4, 16), "w": _small(8, 16, most=2, constant=True, seed=1)},
        _numbers("x", 1 / 8, 1),
        _numbers("w", 1 / 4),
        ("l", "aten.linear.default", _X_NUMBERS, _W_NUMBERS),
        _integers("l", 1 / 32, 5),
        exact=True,
    ),
    "quantized convolution": recipe_of(
        {
            "x": _small(1, 3, 9, 9),
            "w": _small(8, 3, 3, 3, most=2, constant=True, seed=1),
            "scales": tensor_of(8, values=("literal", (1 / 4, 1 / 2) * 4), constant=True),
            "zeros": tensor_of(8, dtype="int64", values=("literal", (0,) * 8), constant=True),
        },
        _numbers("x", 1 / 8),
        _channels("w", "scales", "zeros", 0),
        ("c", "aten.conv2d.default", _X_NUMBERS, _W_NUMBERS, None, (1, 1), (1, 1)),
        ("r", "aten.relu.default", Ref("c")),
        _integers("r", 1 / 32, -128),
        exact=True,
    ),
}

#: Programs that are compiled, as far as the backend takes something of them: the first operators of most backends.
SPECIMENS: Mapping[str, Recipe] = {
    "arithmetic": recipe_of(
        {"x": tensor_of(3, 10), "y": tensor_of(3, 10, seed=1)},
        ("a", "aten.add.Tensor", _X, _Y),
        ("m", "aten.mul.Tensor", Ref("a"), _Y),
        depth=2,
    ),
    "linear": recipe_of(
        {
            "x": tensor_of(4, 16),
            "w": tensor_of(8, 16, constant=True, seed=1),
            "b": tensor_of(8, constant=True, seed=2),
        },
        ("l", "aten.linear.default", _X, Ref("w"), Ref("b")),
        reduction_length=16,
    ),
    "convolution": recipe_of(
        {
            "x": tensor_of(1, 3, 9, 9),
            "w": tensor_of(8, 3, 3, 3, constant=True, seed=1),
            "b": tensor_of(8, constant=True, seed=2),
        },
        ("c", "aten.conv2d.default", _X, Ref("w"), Ref("b"), (1, 1), (1, 1)),
        ("r", "aten.relu.default", Ref("c")),
        reduction_length=27,
    ),
    "softmax": recipe_of({"x": tensor_of(4, 12)}, ("s", "aten.softmax.int", _X, -1), reduction_length=12, depth=3),
    "branches": recipe_of(
        {"x": tensor_of(2, 6), "y": tensor_of(2, 6, seed=1)},
        ("s", "aten.sigmoid.default", _X),
        ("m", "aten.mul.Tensor", Ref("s"), _Y),
        ("c", "aten.cat.default", (Ref("m"), Ref("s")), 1),
        outputs=(Ref("m"), Ref("c")),
        depth=2,
    ),
    "reduction": recipe_of(
        {"x": tensor_of(2, 3, 8, 8)}, ("m", "aten.mean.dim", _X, (-1, -2), True), reduction_length=64
    ),
    "matmul": recipe_of(
        {"x": tensor_of(5, 7), "y": tensor_of(7, 6, seed=1)}, ("m", "aten.mm.default", _X, _Y), reduction_length=7
    ),
    "movement": recipe_of(
        {"x": tensor_of(2, 3, 4)},
        ("p", "aten.permute.default", _X, (2, 0, 1)),
        ("r", "aten.relu.default", Ref("p")),
        ("v", "aten.reshape.default", Ref("r"), (8, 3)),
        exact=True,
    ),
    "negation": recipe_of({"x": tensor_of(4, 5)}, ("n", "aten.neg.default", _X), exact=True),
    "integers": recipe_of(
        {
            "x": tensor_of(3, 4, dtype="int32", values=("integers", -9, 9)),
            "y": tensor_of(3, 4, dtype="int32", values=("integers", -9, 9), seed=1),
        },
        ("a", "aten.add.Tensor", _X, _Y),
        exact=True,
    ),
    **QUANTIZED_SPECIMENS,
}

#: Two numbers, one of them in most places: tables, fewer bits and omitted zeros all keep such weights.
_TWO = ("among", (0.0, 0.0, 0.0, 0.5))
#: Layers with weights that are worth packing, which begins at some thousand numbers, and worth cutting: two in a row
#: with functions between, which another operator reads or none does, pixels, also in groups and few of them, a stack
#: of matrices, a matrix that is written the other way round, and an image of one channel.
LARGE = recipe_of(
    {
        "x": tensor_of(20, 64),
        "w": tensor_of(80, 64, values=_TWO, constant=True, seed=1),
        "b": tensor_of(80, constant=True, seed=2),
        "image": tensor_of(1, 16, 7, 7, seed=3),
        "filters": tensor_of(32, 16, 3, 3, values=_TWO, constant=True, seed=4),
        "v": tensor_of(32, 80, values=_TWO, constant=True, seed=5),
        "other": tensor_of(80, 64, values=_TWO, constant=True, seed=6),
        "pixels": tensor_of(1, 128, 4, 4, seed=7),
        "points": tensor_of(96, 64, 1, 1, values=_TWO, constant=True, seed=8),
        "stack": tensor_of(2, 64, 16, values=_TWO, constant=True, seed=9),
        "turned": tensor_of(64, 80, values=_TWO, constant=True, seed=10),
        "grey": tensor_of(1, 1, 8, 8, seed=11),
        "edges": tensor_of(64, 1, 7, 7, values=_TWO, constant=True, seed=12),
    },
    ("l", "aten.linear.default", _X, Ref("w"), Ref("b")),
    ("s", "aten.tanh.default", Ref("l")),
    ("m", "aten.linear.default", Ref("s"), Ref("v")),
    ("n", "aten.neg.default", Ref("s")),
    ("o", "aten.linear.default", _X, Ref("other")),
    ("h", "aten.mul.Tensor", Ref("o"), 0.5),
    ("t", "aten.silu.default", Ref("h")),
    ("u", "aten.linear.default", Ref("t"), Ref("v")),
    ("c", "aten.conv2d.default", Ref("image"), Ref("filters"), None, (1, 1), (1, 1)),
    ("half", "aten.slice.Tensor", Ref("pixels"), 1, 0, 64),
    ("p", "aten.conv2d.default", Ref("half"), Ref("points")),
    ("g", "aten.conv2d.default", Ref("pixels"), Ref("points"), None, (1, 1), (0, 0), (1, 1), 2),
    ("few", "aten.conv2d.default", Ref("half"), Ref("points"), None, (2, 2)),
    ("k", "aten.matmul.default", _X, Ref("stack")),
    ("one", "aten.unsqueeze.default", _X, 0),
    ("y", "aten.matmul.default", Ref("one"), Ref("turned")),
    ("e", "aten.conv2d.default", Ref("grey"), Ref("edges")),
    reduction_length=144,
    depth=3,
    outputs=tuple(map(Ref, (*"mnucpgkye", "few"))),
)

LONG: Final = "long calls"
#: A chain of layers whose calls take milliseconds: two of them meet, where those of the other programs hardly ever do.
LONG_CALLS = recipe_of(
    {
        "x": tensor_of(128, 512),
        **{
            f"w{layer}": tensor_of(512, 512, values=("uniform", -0.0625, 0.0625), constant=True, seed=1 + layer)
            for layer in range(4)
        },
    },
    *(
        step
        for layer in range(4)
        for step in (
            (f"l{layer}", "aten.linear.default", Ref(f"r{layer - 1}") if layer else _X, Ref(f"w{layer}")),
            (f"r{layer}", "aten.relu.default", Ref(f"l{layer}")),
        )
    ),
    reduction_length=512,
    depth=4,
)

#: A layer whose weights are near four numbers: tables of these are as good as float16.
CLUSTERS = recipe_of(
    {
        "x": tensor_of(4, 64),
        "w": tensor_of(
            48,
            64,
            values=(
                "among",
                tuple(centre * (1 + step) for centre in (-1.0, -0.375, 0.25, 1.5) for step in (0, 2.0**-10)),
            ),
            constant=True,
            seed=1,
        ),
    },
    ("l", "aten.linear.default", _X, Ref("w")),
    reduction_length=64,
)

#: A program with a size that changes from call to call.
DYNAMIC = recipe_of(
    {"x": tensor_of(4, 6), "y": tensor_of(4, 6, seed=1)},
    ("m", "aten.mul.Tensor", _X, _Y),
    ("r", "aten.relu.default", Ref("m")),
    sizes=(Size("rows", 2, 9, (("x", 0), ("y", 0))),),
    calls=((9,), (2,), (7,)),
)

#: Windows over a size that changes, into which a smaller one than the least does not fit.
WINDOWS = recipe_of(
    {
        "x": tensor_of(1, 3, 6, 5),
        "w": tensor_of(4, 3, 3, 3, constant=True, seed=1),
        "v": tensor_of(3, 4, 3, 3, constant=True, seed=2),
    },
    ("c", "aten.conv2d.default", _X, Ref("w")),
    ("t", "aten.conv_transpose2d.input", _X, Ref("v"), None, (1, 1), (2, 2)),
    ("m", "aten.max_pool2d.default", _X, (3, 3), (1, 1)),
    ("a", "aten.avg_pool2d.default", _X, (3, 3), (1, 1)),
    sizes=(Size("rows", 4, 9, (("x", 2),)),),
    calls=((9,), (4,), (7,)),
    outputs=tuple(map(Ref, "ctma")),
    reduction_length=27,
    depth=2,
)

#: One of two sizes that change is joined to another axis and taken apart again: the values between fit or not.
JOINED_SIZES = recipe_of(
    {"x": tensor_of(3, 4, 2, 8), "w": tensor_of(8, 8, constant=True, seed=1)},
    ("f", "aten.flatten.using_ints", _X, 1, 2),
    ("l", "aten.linear.default", Ref("f"), Ref("w")),
    ("m", "aten.matmul.default", Ref("l"), Ref("w")),
    ("v", "aten.view_as.default", Ref("m"), _X),
    sizes=(Size("rows", 2, 5, (("x", 0),)), Size("columns", 2, 7, (("x", 1),))),
    calls=((5, 7), (2, 3), (4, 2)),
    reduction_length=8,
    depth=2,
)

#: Two inputs with a size each that changes.
TWO_SIZES = recipe_of(
    {"x": tensor_of(4, 6), "y": tensor_of(6, 5, seed=1)},
    ("m", "aten.mm.default", _X, _Y),
    sizes=(Size("rows", 3, 9, (("x", 0),)), Size("columns", 2, 7, (("y", 1),))),
    calls=((9, 2), (3, 7), (4, 4)),
    reduction_length=6,
)

#: Operators of newer devices only, which older ones compute in another way: attention in its usual scale
#: and in another, a row that is written into a cache, integers that float32 does not have.
DECODER = recipe_of(
    {
        "q": tensor_of(2, 3, 8),
        "k": tensor_of(2, 4, 8, seed=1),
        "v": tensor_of(2, 4, 8, seed=2),
        "cache": tensor_of(2, 5, 3, seed=3),
        "row": tensor_of(2, 1, 3, seed=4),
        "place": tensor_of(1, dtype="int64", values=("integers", -5, 4)),
        "count": tensor_of(4, dtype="int32", values=("literal", (1 << 24 | 1, -(1 << 30) - 1, 7, 0))),
    },
    ("a", _ATTENTION, Ref("q"), Ref("k"), Ref("v")),
    ("s", _ATTENTION, Ref("q"), Ref("k"), Ref("v"), {"scale": 0.75}),
    ("p", "aten.index_put.default", Ref("cache"), (None, Ref("place")), Ref("row")),
    ("n", "aten.add.Tensor", Ref("count"), 1),
    outputs=tuple(map(Ref, "aspn")),
    reduction_length=12,
    depth=4,
)

_ROW = (1, 64)
_FOUND = (Ref("q", 0), Ref("q", 1))
_CHOOSE = ("ASYMMETRIC", _ROW, torch.int8, -128, 127, 2.0**-126, None, torch.int8)
#: Rows with a scale of their own in each call, as integers, and the numbers that they represent.
_ROWS: Sequence[tuple[Any, ...]] = (
    ("q", "torchao.choose_qparams_affine.default", _X, *_CHOOSE),
    ("xq", "torchao.quantize_affine.default", _X, _ROW, *_FOUND, torch.int8, -128, 127),
    ("xf", "torchao.dequantize_affine.default", Ref("xq"), _ROW, *_FOUND, torch.int8, -128, 127),
)
_GROUPS = (Ref("w"), (1, 32), Ref("scales"), Ref("zeros"), torch.int8, -8, 7)

#: Programs whose blobs have fields that those of the specimens lack: other kinds of convolutions, windows with borders,
#: scales of rows and of groups, lists of axes, places and sizes, tables that are looked up, numbers beside tensors.
DAMAGED: Mapping[str, Recipe] = {
    "images": recipe_of(
        {
            "x": tensor_of(1, 4, 7, 6),
            "w": tensor_of(4, 1, 3, 3, constant=True, seed=1),
            "v": tensor_of(4, 3, 2, 2, constant=True, seed=2),
        },
        ("m", "aten.max_pool2d.default", _X, (3, 3), (1, 1), (1, 1)),
        ("c", "aten.conv2d.default", Ref("m"), Ref("w"), None, (1, 1), (1, 1), (1, 1), 4),
        ("a", "aten.avg_pool2d.default", Ref("c"), (2, 3), (2, 2), (1, 1), False, False),
        ("t", "aten.conv_transpose2d.input", Ref("a"), Ref("v"), None, (2, 2), (0, 0), (1, 1)),
        # One more of border changes no size here.
        ("s", "aten.max_pool2d.default", _X, (3, 2), (2, 2), (1, 1)),
        outputs=(Ref("t"), Ref("s")),
        reduction_length=17,
        depth=3,
    ),
    "rows and groups": recipe_of(
        {
            "x": tensor_of(3, 64),
            "w": _small(4, 64, most=7, constant=True, seed=1),
            "scales": tensor_of(4, 2, values=("literal", (1 / 4, 1 / 2) * 4), constant=True),
            "zeros": tensor_of(4, 2, dtype="int64", values=("literal", (0,) * 8), constant=True),
        },
        *_ROWS,
        ("wf", "torchao.dequantize_affine.default", *_GROUPS),
        ("l", "aten.linear.default", _X_NUMBERS, _W_NUMBERS),
        reduction_length=64,
    ),
    "integers of images": recipe_of(
        {
            "x": _small(1, 4, 7, 6),
            "w": _small(4, 1, 3, 3, most=2, constant=True, seed=1),
            "v": _small(4, 3, 2, 2, most=2, constant=True, seed=2),
            "wscales": tensor_of(4, values=("literal", (1 / 4, 1 / 2) * 2), constant=True),
            "vscales": tensor_of(3, values=("literal", (1 / 4, 1 / 2, 1 / 4)), constant=True),
            "wzeros": tensor_of(4, dtype="int64", values=("literal", (0,) * 4), constant=True),
            "vzeros": tensor_of(3, dtype="int64", values=("literal", (0,) * 3), constant=True),
        },
        _numbers("x", 1 / 8),
        _channels("w", "wscales", "wzeros", 0),
        ("c", "aten.conv2d.default", _X_NUMBERS, _W_NUMBERS, None, (1, 1), (1, 1), (1, 1), 4),
        _integers("c", 1 / 32, 3),
        _numbers("cq", 1 / 32, 3),
        _channels("v", "vscales", "vzeros", 1),
        ("t", "aten.conv_transpose2d.input", Ref("cqf"), Ref("vf"), None, (2, 2), (0, 0), (1, 1)),
        _integers("t", 1 / 16, -5),
        reduction_length=36,
        depth=3,
    ),
    "pieces": recipe_of(
        {"x": tensor_of(2, 4, 5, 6), "y": tensor_of(2, 1, 5, 6, seed=1)},
        ("n", "aten.neg.default", _X),
        ("t", "aten.permute.default", Ref("n"), (0, 2, 3, 1)),
        ("s", "aten.slice.Tensor", Ref("t"), 2, 1, 5),
        ("p", "aten.constant_pad_nd.default", Ref("s"), (1, 0, 0, 2), 0.5),
        ("e", "aten.expand.default", _Y, (2, 3, 5, 6)),
        ("c", "aten.cat.default", (Ref("n"), Ref("e"), _Y), 1),
        ("f", "aten.flip.default", Ref("c"), (1, 3)),
        ("r", "aten.reshape.default", Ref("c"), (4, 4, 30)),
        ("d", "aten.split_with_sizes.default", Ref("n"), (1, 3), 1),
        outputs=(Ref("p"), Ref("f"), Ref("r"), Ref("d", 0), Ref("d", 1)),
        exact=True,
    ),
    "rows and tables": recipe_of(
        {
            "x": tensor_of(3, 4, 8),
            "places": tensor_of(5, dtype="int64", values=("integers", 0, 6)),
            "table": tensor_of(7, 8, constant=True, seed=1),
            "scale": tensor_of(8, constant=True, seed=2),
        },
        ("e", "aten.embedding.default", Ref("table"), Ref("places")),
        ("n", "aten.layer_norm.default", _X, (8,), Ref("scale"), None, 0.001),
        ("c", "aten.clamp.default", Ref("n"), -0.75, 1.25),
        ("l", "aten.leaky_relu.default", Ref("c"), 0.125),
        ("m", "aten.mean.dim", Ref("n"), (0, 2), True),
        ("a", "aten.amax.default", _X, (1,)),
        ("g", "aten.gt.Scalar", _X, 0.25),
        ("w", "aten.where.self", Ref("g"), Ref("l"), _X),
        outputs=tuple(map(Ref, "emaw")),
        reduction_length=24,
        depth=4,
    ),
}

#: Programs only for queries of a partitioner: unusual dtypes, ranks and sizes.
QUESTIONS: Mapping[str, Recipe] = {
    **SPECIMENS,
    "double precision": recipe_of({"x": tensor_of(3, dtype="float64")}, ("a", "aten.exp.default", _X)),
    "half precision": recipe_of({"x": tensor_of(3, dtype="float16")}, ("a", "aten.mul.Tensor", _X, _X)),
    "bool": recipe_of({"x": tensor_of(3, dtype="bool")}, ("a", "aten.logical_not.default", _X), exact=True),
    "complex": recipe_of({"x": tensor_of(3, dtype="complex64")}, ("a", "aten.mul.Tensor", _X, _X)),
    "bytes": recipe_of({"x": tensor_of(3, dtype="uint8")}, ("a", "aten.bitwise_and.Tensor", _X, _X), exact=True),
    "scalar": recipe_of({"x": tensor_of()}, ("a", "aten.add.Tensor", _X, 2)),
    "rank 6": recipe_of({"x": tensor_of(1, 2, 1, 2, 1, 2)}, ("a", "aten.relu.default", _X), exact=True),
    "no elements": recipe_of({"x": tensor_of(0, 3)}, ("a", "aten.add.Tensor", _X, _X), exact=True),
    "special values": recipe_of(
        {"x": tensor_of(5), "i": tensor_of(2, dtype="int64", values=("integers", 0, 4))},
        ("a", "aten.gelu.default", _X, {"approximate": "none"}),
        ("b", "aten.gelu.default", _X, {"approximate": "tanh"}),
        ("c", "aten.pow.Tensor_Scalar", _X, 2),
        ("d", "aten.pow.Tensor_Scalar", _X, 0.5),
        ("e", "aten.pow.Tensor_Scalar", _X, 1.5),
        ("f", "aten._to_copy.default", _X, {"dtype": torch.int64}),
        ("g", "aten.index.Tensor", _X, (Ref("i"),)),
        ("h", "aten.index_put.default", _X, (Ref("i"),), Ref("g")),
        ("k", "aten._to_copy.default", Ref("i"), {"dtype": torch.float32}),
        outputs=tuple(map(Ref, "abcdefghk")),
    ),
    "indices": recipe_of(
        {"x": tensor_of(3, dtype="int64", values=("integers", 0, 4)), "w": tensor_of(5, 2, constant=True)},
        ("a", "aten.embedding.default", Ref("w"), _X),
        exact=True,
    ),
    "several results": recipe_of(
        {"x": tensor_of(3, 6)},
        ("t", "aten.topk.default", _X, 2),
        outputs=(Ref("t", 0), Ref("t", 1)),
        exact=True,
    ),
    "groups": recipe_of(
        {"x": tensor_of(2, 4, 7), "w": tensor_of(4, 2, 3, constant=True)},
        ("c", "aten.conv1d.default", _X, Ref("w"), None, (1,), (2,), (2,), 2),
    ),
    "pooling": recipe_of(
        {"x": tensor_of(1, 2, 6, 6)}, ("p", "aten.max_pool2d.default", _X, (3, 3), (2, 2)), exact=True
    ),
    "changing sizes": DYNAMIC,
    # One size is unbounded, beside one that is not.
    "sizes without a bound": recipe_of(
        {"x": tensor_of(3, 4)},
        ("r", "aten.relu.default", _X),
        ("c", "aten.cat.default", (Ref("r"), _X), 1),
        sizes=(Size("rows", 2, 1 << 60, (("x", 0),)), Size("columns", 2, 9, (("x", 1),))),
        exact=True,
    ),
    # No delegate can have a result whose size is known only after it was computed: every backend refuses something.
    "sizes that depend on numbers": recipe_of(
        {"x": tensor_of(3), "m": tensor_of(3, dtype="bool")},
        ("s", "aten.masked_select.default", _X, Ref("m")),
        exact=True,
    ),
}


@dataclass(frozen=True)
class Sample:
    """One delegate with the tensors of one call, whose results count as right for this payload."""

    #: The specimen's name.
    name: str
    recipe: Recipe
    #: The file that the delegate is in.
    data: bytes
    payload: DelegatePayload
    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]
    #: Keys of the named data that the backend gave with the program's blobs.
    keys: tuple[str, ...] = ()
    #: Their alignments in bytes, as the backend requested, by key.
    alignments: Mapping[str, int] = field(default_factory=dict)
    #: Keys of the debug handle maps of the program's delegates.
    handles: frozenset[int | str] = frozenset()

    def blank(self, fill: str = "zero") -> list[torch.Tensor]:
        """New outputs as the engine passes them: of the largest sizes, where sizes change."""
        specs = zip(self.payload.outputs, self.outputs, strict=True)
        return blank([output.new_empty(spec.shape) if spec.dynamic else output for spec, output in specs], fill)


_NO_BLOBS: Final = "the backend is a library of operators: it makes no delegates"


@dataclass
class _Known:
    """Cached facts about a backend, in this process."""

    lowered: dict[str, LoweredProgram | Exception] = field(default_factory=dict)
    samples: dict[str, list[Sample] | Exception] = field(default_factory=dict)


_KNOWN: WeakKeyDictionary[LoadedBackend, dict[str, _Known]] = WeakKeyDictionary()


def _known(context: Context) -> _Known:
    backend = discovery.get_backend(context.backend)
    return _KNOWN.setdefault(backend, {}).setdefault(repr(context.option_items), _Known())


def backend_of(context: Context) -> LoadedBackend:
    """The backend under test."""
    return discovery.get_backend(context.backend)


def compiles(context: Context) -> LoadedBackend:
    """The backend, if it compiles programs. Raises NotApplicable if it does not."""
    backend = backend_of(context)
    if not backend.has("create_partitioner"):
        raise NotApplicable("the plugin compiles no programs: it has no create_partitioner")
    return backend


def missing_compiler(context: Context) -> str:
    """The backend's reason why programs with these options cannot be compiled on this computer; "" if they can, or if
    the backend refuses the options."""
    backend = backend_of(context)
    try:
        found = backend.compiler_availability(backend.make_options(context.options))
    except OptionError:
        return ""
    return "" if found.available else f"cannot compile here: {found.reason}"


def lower(recipe: Recipe, context: Context, exported: ExportedProgram | None = None) -> LoweredProgram:
    """The recipe, lowered with the backend and its options. Raises exceptions of lowering."""
    options = context.by_backend
    return delegatekit.lower(exported or recipe.export(), backends=[context.backend], options=options)


def tried(recipe: Recipe, context: Context, what: str) -> tuple[LoweredProgram, Outcome]:
    """The recipe, lowered for what runs here, and the outcome with its own inputs.

    Raises NotApplicable where it is not lowered, and Broken, with `what` the inputs are, for a fault.
    """
    runs(context)
    try:
        program = lower(recipe, context)
    except Exception as error:
        raise NotApplicable(f"is not lowered: {words(error)}") from error
    outcome = try_recipe(recipe, context)
    if outcome.verdict.is_fault:
        raise Broken(f"{what}: {outcome.detail}")
    return program, outcome


def lowered(name: str, context: Context) -> LoweredProgram:
    """A specimen lowered; once in this process. Raises exceptions of lowering, again each time."""
    table = _known(context).lowered
    if name not in table:
        try:
            table[name] = lower(_find(name), context)
        except Exception as error:
            table[name] = error
    found = table[name]
    if isinstance(found, Exception):
        raise found
    return found


def _find(name: str) -> Recipe:
    return {"dynamic": DYNAMIC, "windows": WINDOWS, LONG: LONG_CALLS, **SPECIMENS, **DAMAGED}[name]


def delegates(program: LoweredProgram, backend: str) -> list[Delegate]:
    """The delegates of a backend in a lowered program."""
    return [
        delegate
        for method in program.methods.values()
        for delegate in method.delegates
        if delegate.partition.backend == backend
    ]


def by_blob(program: LoweredProgram, backend: str) -> dict[bytes, Delegate]:
    """The delegates of a backend in a lowered program by their blobs, whose pieces are one in a file."""
    return {b"".join(map(bytes, delegate.blob)): delegate for delegate in delegates(program, backend)}


def takes(name: str, context: Context) -> bool:
    """True if the backend takes something of a specimen; False for one that cannot be lowered."""
    try:
        return bool(delegates(lowered(name, context), context.backend))
    except Exception:  # the rule contract/compiles-what-it-takes reports it
        return False


def taken(context: Context) -> dict[str, LoweredProgram]:
    """The specimens of which the backend takes something. Raises NotApplicable if it takes none.

    One that cannot be lowered is left out: the rule contract/compiles-what-it-takes reports it.
    """
    if compiles(context).is_library:
        raise NotApplicable(_NO_BLOBS)
    found: dict[str, LoweredProgram] = {}
    failed = ""
    for name in SPECIMENS:
        try:
            program = lowered(name, context)
        except Exception as error:
            failed = failed or f"{name}: {words(error)}"
            continue
        if delegates(program, context.backend):
            found[name] = program
    if not found:
        why = f"lowering fails: {failed}" if failed else f"it takes no operator of {', '.join(SPECIMENS)}"
        raise NotApplicable(f"no program to try it with: {why}")
    return found


def partitions(program: LoweredProgram, backend: str) -> list[tuple[PartitionProgram, Delegate]]:
    """The programs that the backend compiled, made anew, with their results."""
    found = []
    for name, method in program.methods.items():
        mine = [step for step in method.steps if isinstance(step, Delegate) and step.partition.backend == backend]
        for index, delegate in enumerate(mine):
            found.append((partition_program(method.edge, delegate.partition, index, name), delegate))
    return found


def preprocess(partition: PartitionProgram, context: Context) -> PreprocessResult:
    """The backend's own answer for one partition. Raises exceptions of the plugin."""
    backend = backend_of(context)
    options = backend.make_options(context.options)
    if backend.compiles_together(options):
        return backend.preprocess_methods({partition.method: [partition]}, options)[partition.method][0]
    return backend.preprocess(partition, options)


# Questions to the partitioner


def questions(context: Context) -> dict[str, EdgeMethod]:
    """Edge programs to ask the partitioner about, made anew; without those that the edge dialect cannot express."""
    backend = compiles(context)
    keep = backend.create_partitioner(backend.make_options(context.options)).keep_operators()
    found: dict[str, EdgeMethod] = {}
    for name, recipe in QUESTIONS.items():
        try:
            found[name] = build_edge(recipe.export(), keep=keep)
        except Exception:  # core's concern: the operator cases try it
            continue
    return found


#: Programs of which most backends refuse something, and of the last one every backend.
_REFUSED = (
    "double precision",
    "bool",
    "complex",
    "rank 6",
    "indices",
    "sizes without a bound",
    "sizes that depend on numbers",
)


def reasons(context: Context) -> list[str]:
    """The partitioner's answers on some programs, node by node, for comparison with another process."""
    backend = backend_of(context)
    partitioner = backend.create_partitioner(backend.make_options(context.options))
    keep = partitioner.keep_operators()
    found = []
    for name in _REFUSED:
        try:
            view = build_edge(QUESTIONS[name].export(), keep=keep).view
        except Exception:  # core's concern: the operator cases try it
            continue
        for call in view.calls():
            answer = partitioner.check(call)
            found.append(f"{name}, {call.operator}: {answer.supported} {answer.reason}")
    return found


# Samples


class _Recorder:
    """Wraps the backend between the engine and it: records inputs and outputs of its runtime."""

    def __init__(self, backend: LoadedBackend) -> None:
        self.name = backend.name
        self.description: BackendDescription = backend.description
        self._backend = backend
        self.payloads: list[DelegatePayload] = []
        self.calls: dict[int, tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]] = {}

    def runtime_availability(self) -> Availability:
        return self._backend.runtime_availability()

    def create_runtime(self) -> _Recorder:
        self._runtime = self._backend.create_runtime()
        return self

    def init(self, payload: DelegatePayload) -> tuple[int, Any]:
        handle = self._runtime.init(payload)
        self.payloads.append(payload)
        return len(self.payloads) - 1, handle

    def execute(self, handle: tuple[int, Any], inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        given = tuple(tensor.clone() for tensor in inputs)
        self._runtime.execute(handle[1], inputs, outputs)
        self.calls[handle[0]] = given, tuple(tensor.clone() for tensor in outputs)

    def destroy(self, handle: tuple[int, Any]) -> None:
        self._runtime.destroy(handle[1])


def take_down(name: str, recipe: Recipe, program: LoweredProgram, context: Context) -> list[Sample]:
    """Load a program and run it once with the recipe's inputs; the backend's delegates come back as samples."""
    data = program.buffer
    given = [item for delegate in delegates(program, context.backend) for item in delegate.named_data]
    alignments = {item.key: item.alignment for item in given}
    keys = tuple(sorted(alignments))
    handles = frozenset(key for delegate in delegates(program, context.backend) for key in delegate.debug_handle_map)
    return [
        replace(item, keys=keys, alignments=alignments, handles=handles)
        for item in recorded(name, recipe, data, context)
    ]


def recorded(name: str, recipe: Recipe, data: bytes, context: Context) -> list[Sample]:
    """Load a file and run it once with the recipe's inputs; inputs and outputs of the backend's runtime."""
    return [
        Sample(name, recipe, data, payload, *tensors)
        for payload, tensors in observed(data, [("forward", recipe.inputs())], context)
    ]


def observed(
    data: bytes, calls: Sequence[tuple[str, Sequence[Any]]], context: Context, files: Sequence[bytes] = ()
) -> list[tuple[DelegatePayload, tuple[tuple[torch.Tensor, ...], tuple[torch.Tensor, ...]]]]:
    """Load a file and call its methods; for each delegate that ran its payload, and its last inputs and results."""
    recorder = _Recorder(backend_of(context))
    find: Callable[[str], Any] = lambda _: recorder  # noqa: E731
    loaded = delegatekit.load(data, data=files, find_backend=find)
    try:
        for method, inputs in calls:
            loaded[method].run(tuple(inputs))
    finally:
        loaded.close()
    return [
        (payload, recorder.calls[index]) for index, payload in enumerate(recorder.payloads) if index in recorder.calls
    ]


def runs(context: Context) -> LoadedBackend:
    """The backend, if its blobs run here. Raises NotApplicable with the reason if they do not."""
    backend = compiles(context)
    if backend.is_library:
        raise NotApplicable(_NO_BLOBS)
    available = backend.runtime_availability()
    if not available.available:
        raise NotApplicable(f"blobs cannot be run here: {available.reason}")
    return backend


def sample(name: str, context: Context) -> list[Sample]:
    """The delegates of one specimen; once in this process.

    "dynamic" and "windows" have changing sizes, and calls of `LONG` take milliseconds.

    Raises NotApplicable if the backend takes nothing of it, and exceptions of lowering, loading and running.
    """
    runs(context)
    table = _known(context).samples
    if name not in table:
        try:
            program = lowered(name, context)
            found = delegates(program, context.backend)
            table[name] = take_down(name, _find(name), program, context) if found else []
        except Exception as error:
            table[name] = error
    known = table[name]
    if isinstance(known, Exception):
        raise known
    if not known:
        raise NotApplicable(f"the backend takes no operator of the program {name}")
    return known


def samples(context: Context) -> list[Sample]:
    """The delegates of all specimens that compile and run. Raises NotApplicable if there are none.

    One that fails is left out: the rule contract/compiles-what-it-takes reports it.
    """
    runs(context)
    found: list[Sample] = []
    failed = ""
    for name in taken(context):
        try:
            found += sample(name, context)
        except Exception as error:
            failed = failed or f"{name}: {words(error)}"
    if not found:
        raise NotApplicable(f"no delegate to try it with: {failed}")
    return found


# Payloads


def changed(
    payload: DelegatePayload,
    blob: bytes | None = None,
    named: Mapping[str, bytes] | None = None,
    dtypes: Mapping[int, torch.dtype] | None = None,
    shapes: Mapping[int, Sequence[int]] | None = None,
    arguments: tuple[Sequence[int], Sequence[int]] | None = None,
) -> DelegatePayload:
    """The payload with another blob or other named data, in all its parts.

    `dtypes` and `shapes` are others of arguments by their places, inputs first: those of a program that calls the same
    blob. Its inputs and outputs are the values at the places `arguments`.
    """
    original = {key: bytes(value) for key, value in payload.named_data.items()}
    data = original | dict(named or {})
    image = read(payload.as_program(sorted(original)))
    plan = (image.program.execution_plan or [])[0]
    values: list[Any] = [value.val for value in plan.values or ()]
    specs = [*payload.inputs, *payload.outputs]
    for place, dtype in (dtypes or {}).items():
        values[place].scalar_type = scalar_type(dtype)
        specs[place] = replace(specs[place], dtype=str(dtype).removeprefix("torch."))
    for place, shape in (shapes or {}).items():
        values[place].sizes = list(shape)
        specs[place] = replace(specs[place], shape=tuple(shape))
    split = len(values) - len(plan.outputs or ())
    given, made = arguments or (range(split), range(split, len(values)))
    table = (plan.delegates or [])[0]
    content = bytes(payload.blob) if blob is None else blob

    def as_program(keys: Any) -> bytes:
        pieces = tuple(NamedData(key, data[key]) for key in keys)
        inputs, outputs = [values[place] for place in given], [values[place] for place in made]
        return to_bytes(delegate_program(table, memoryview(content), pieces, inputs, outputs, str(plan.name)))

    views = {key: memoryview(value) for key, value in data.items()}
    if arguments is None:  # numbers among the values have no specs
        given, made = range(len(payload.inputs)), range(len(payload.inputs), len(specs))
    return replace(
        payload,
        blob=memoryview(content),
        inputs=tuple(specs[place] for place in given),
        outputs=tuple(specs[place] for place in made),
        named_data=views,
        as_program=as_program,
    )


def blank(tensors: Sequence[torch.Tensor], fill: str = "zero") -> list[torch.Tensor]:
    """New tensors of the same shapes and dtypes, filled with zeros, with "nan" (-1 for integers) or with "garbage"."""
    made = []
    for tensor in tensors:
        new = torch.zeros_like(tensor)
        if fill == "nan":
            new.fill_(float("nan") if tensor.is_floating_point() else True if tensor.dtype == torch.bool else -1)
        elif fill == "garbage" and tensor.dtype != torch.bool:
            new.view(torch.uint8).fill_(0x5A) if new.numel() and new.dim() else new.fill_(42)
        made.append(new)
    return made


def same(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """Differences of results from the expected ones, bit by bit; empty if there are none."""
    if len(results) != len(expected):
        return f"{len(results)} outputs instead of {len(expected)}"
    for index, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        if result.shape != wanted.shape or result.dtype != wanted.dtype:
            return f"output {index} is {result.dtype} {tuple(result.shape)}, not {wanted.dtype} {tuple(wanted.shape)}"
        if bits(result) != bits(wanted):
            wrong = int((result != wanted).sum())
            return f"output {index} differs in {wrong} of {result.numel()} elements"
    return ""


def digest(data: bytes | memoryview) -> str:
    """A short name of some bytes."""
    return hashlib.sha256(data).hexdigest()[:16]
