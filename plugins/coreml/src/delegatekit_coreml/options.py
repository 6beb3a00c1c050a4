"""The options of the Core ML backend."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import at_least, between, leave_out_option, whole_graph_option

from .targets import TARGETS

#: Kinds of layers that have weights.
LAYERS: Final = ("linear", "convolution", "depthwise")

_ENUMERATED: Final = re.compile(r"\w+:\d+(x\d+)*", re.ASCII)


def enumerated_shapes_fault(items: tuple[str, ...]) -> str | None:
    """The fault of a value of the option `enumerated_shapes`; None if it is valid."""
    wrong = next((item for item in items if not _ENUMERATED.fullmatch(item)), None)
    return None if wrong is None else f"{wrong!r} is not like x:1x3x224x224"


@dataclass(frozen=True)
class CoreMLOptions(BackendOptions):
    """Options for lowering to Core ML."""

    leave_out: frozenset[str] = leave_out_option()
    whole_graph: bool = whole_graph_option()
    target: str = option(
        "ios17",
        help="The oldest system that the program is for.",
        choices=tuple(TARGETS),
    )
    precision: str = option(
        "float16",
        help="The type of float32 computations on the device, weights included: the Neural Engine has float16 only. "
        "Inputs and outputs stay float32.",
        choices=("float16", "float32"),
    )
    float32_operators: frozenset[str] = option(
        frozenset(),
        help="Operators that are computed in float32 while everything else is in float16: "
        '"aten._softmax.default", "aten._softmax" or "_softmax".',
    )
    float32_modules: frozenset[str] = option(
        frozenset(),
        help="Modules of the model that are computed in float32 with everything in them: "
        '"encoder.layers.3.norm", "**.norm".',
    )
    state: bool = option(
        True,
        help="Keep buffers that the program updates in the delegate, from ios18 on: those that begin with zeros, "
        "in float16.",
    )
    enumerated_shapes: tuple[str, ...] = option(
        (),
        help="The shapes that inputs may have, instead of ranges of sizes, which the Neural Engine does not support: "
        '"x:1x3x224x224,x:1x3x448x448". With several inputs, the first shapes belong together, and so on.',
        check=enumerated_shapes_fault,
    )
    weight_sharing: str = option(
        "positional",
        help="Weight sharing between delegates of several methods, from ios18 on: positional puts the first ones of "
        "all methods into one model, the second ones, and so on.",
        choices=("positional", "disabled"),
    )
    debug_files: bool = option(
        False,
        help="Add the files from which ExecuTorch's profiler finds operators to a blob: nothing else needs them. "
        "A model of several methods has none.",
    )
    compute_units: str = option(
        "all",
        help="The compute units on which the program may run.",
        choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"),
    )
    palettize: int = option(
        0,
        help="Bits of the indices into a table by which the constant floating-point weights of linear layers and "
        "convolutions are stored; the tables are found by k-means. 0: no tables. "
        "From ios16 on, 3 bits from ios18 on.",
        choices=(0, 1, 2, 3, 4, 6, 8),
    )
    palette_channels: int = option(
        0,
        help="This many output channels share a table (if they divide the channels of a weight); 0: all of them. "
        "From ios18 on.",
        check=at_least(0),
    )
    prune: float = option(
        0.0,
        help="The share of the numbers nearest to zero that are left out of these weights. From ios16 on.",
        check=between(0, 1),
    )
    unpacked_layers: frozenset[str] = option(
        frozenset({"depthwise"}),
        help="Kinds of layers whose weights palettize and prune leave unchanged. Depthwise convolutions have few "
        "weights, each of which matters.",
        choices=LAYERS,
    )
    unpacked_modules: frozenset[str] = option(
        frozenset(),
        help='Modules of the model whose weights palettize and prune leave unchanged: "classifier", "blocks.*.conv1".',
    )
    unpacked_below: int = option(
        2048,
        help="Weights with fewer numbers are left unchanged by palettize and prune.",
        check=at_least(0),
    )
