"""Programs of another quantizer: the backend's own quantized layers, with numbers that it would not have chosen.

A scheme chooses one form of weights and activations. Files of torchao's or ExecuTorch's quantizers have others: scales
along the inputs, one for all, zero points of weights, unsigned bytes. A backend computes with the program's numbers, or
refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from operator import attrgetter
from typing import Any

import torch
from torch import nn

from ..context import Context
from ..outcome import Outcome, Verdict
from .base import Case
from .quantized import SchemeCase, judged, quantized_by, scheme_names
from .quantized_operators import other_targets, snippet_of

_Q: Any = torch.ops.quantized_decomposed
#: Factor of the first channel where its scale is to be below the least of float16.
_TINY = 2.0**-20


@dataclass(frozen=True)
class Weights:
    """A form of quantized weights: integers from `low` to `high`, a scale for each place along `axis` (None: one)."""

    axis: int | None = 0
    low: int = -127
    high: int = 127
    dtype: torch.dtype = torch.int8
    #: True if the range is that of the numbers, with a zero point of its own, and not symmetric.
    shifted: bool = False
    #: Factor of the first output channel.
    first: float = 1.0
    #: Number of inputs that share a scale; 0: as `axis` says.
    group: int = 0

    def blocks(self, shape: Sequence[int]) -> list[int]:
        """The number of elements along each axis that share a scale."""
        if self.group:
            return [1, self.group]
        return [1 if axis == self.axis else size for axis, size in enumerate(shape)]

    def of(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Integers, scales and zero points of a weight (O, I, ...), one for each block; the scales keep its rank."""
        weight, shape = weight.clone(), weight.shape
        weight[0] *= self.first
        sizes = [(size // block, block) for size, block in zip(shape, self.blocks(shape), strict=True)]
        weight = weight.reshape([part for pair in sizes for part in pair])
        others = tuple(range(1, weight.dim(), 2))
        low, high = weight.amin(others, True).clamp(max=0), weight.amax(others, True).clamp(min=0)
        if not self.shifted:
            high = torch.maximum(-low, high)
            low = -high
        scale = ((high - low) / (self.high - self.low)).clamp(min=torch.finfo(torch.float32).tiny)
        zero = (self.low - low / scale).round()
        integers = (weight / scale + zero).round().clamp(self.low, self.high)
        found = [item.reshape([count for count, _ in sizes]) for item in (scale, zero)]
        return integers.reshape(shape).to(self.dtype), found[0], found[1].to(torch.int64)


#: name -> a form of weights, or None: activations get bytes of the other sign.
FORMS: Mapping[str, Weights | None] = {
    "scales-along-the-inputs": Weights(axis=1),
    "one-scale": Weights(axis=None),
    "zero-points-of-weights": Weights(low=-128, shifted=True),
    "unsigned-weights": Weights(low=0, high=255, dtype=torch.uint8, shifted=True),
    "four-bits-in-bytes": Weights(low=-8, high=7),
    "two-bits-in-bytes": Weights(low=-2, high=1),
    "a-tiny-channel": Weights(first=_TINY),
    "smaller-groups": Weights(low=-8, high=7, group=16),
    "groups-of-bytes": Weights(group=32),
    "groups-with-zero-points": Weights(low=-8, high=7, group=16, shifted=True),
    "groups-of-bytes-with-zero-points": Weights(low=-128, group=32, shifted=True),
    "bytes-of-the-other-sign": None,
}
#: Forms of the layers of one program, in turn.
_IN_TURN = (
    FORMS["zero-points-of-weights"],
    FORMS["unsigned-weights"],
    Weights(low=-8, high=7, shifted=True),
    FORMS["one-scale"],
)


class Layers(nn.Module):
    """Linear layers and convolutions of as many inputs as outputs, where exchanging both changes no shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64, bias=False)
        self.wide, self.deep = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=4)
        self.back = nn.ConvTranspose2d(4, 4, 2, 2)

    def forward(self, rows: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(3, 64) and (1, 4, 6, 5) -> (3, 64) and (1, 4, 8, 6)."""
        planes = self.back(self.deep(self.wide(image).relu()))
        return self.second(self.first(rows).relu()), planes


def rewritten(quantized: torch.fx.GraphModule, *forms: Weights | None) -> int:
    """Give a quantized module other forms of weights or activations in turn, in place; returns their number.

    Its own numbers in eager stay the reference: they are those that the new form represents.
    """
    nodes = [node for node in quantized.graph.nodes if node.op == "call_function"]
    turn, count = cycle(forms), 0
    form = next(turn)
    for node in nodes:
        if _other_sign(node) if form is None else _reweighted(quantized, form, node):
            form, count = next(turn), count + 1
    quantized.graph.eliminate_dead_code()
    quantized.recompile()
    return count


def _reweighted(quantized: torch.fx.GraphModule, form: Weights, node: torch.fx.Node) -> bool:
    """Put a constant weight of another form in a dequantize's place, if it is one."""
    affine = str(node.target).startswith("torchao.dequantize_affine")
    if not affine and not str(node.target).startswith("quantized_decomposed.dequantize_per"):
        return False
    if not _is_constant(node.args[0]):
        return False
    target: Any = node.target
    weight = _value(quantized, node)
    if weight.dim() < 2 or (form.group and not (affine and weight.dim() == 2)):
        return False  # a bias, or without groups
    integers, scale, zero = form.of(weight)
    if not affine:
        scale, zero = scale.reshape(-1), zero.reshape(-1)
    with quantized.graph.inserting_before(node):
        constants = []
        for what, value in (("integers", integers), ("scale", scale), ("zero", zero)):
            quantized.register_buffer(f"{node.name}_{what}", value.contiguous())
            constants.append(quantized.graph.get_attr(f"{node.name}_{what}"))
        arguments: tuple[Any, ...]
        if affine:
            arguments = (constants[0], form.blocks(weight.shape), *constants[1:], form.dtype, form.low, form.high)
        elif form.axis is None:
            target = _Q.dequantize_per_tensor.default
            arguments = (constants[0], float(scale.item()), int(zero.item()), form.low, form.high, form.dtype)
        else:
            target = _Q.dequantize_per_channel.default
            arguments = (*constants, form.axis, form.low, form.high, form.dtype)
        made = quantized.graph.call_function(target, arguments)
    node.replace_all_uses_with(made)
    return True


def _is_constant(item: Any) -> bool:
    return isinstance(item, torch.fx.Node) and item.op == "get_attr"


def _value(module: nn.Module, node: torch.fx.Node) -> torch.Tensor:
    """The tensor that a call makes of constants."""
    target: Any = node.target
    with torch.no_grad():
        found: torch.Tensor = target(*(_fetched(module, item) for item in node.args), **node.kwargs)
    return found


def _fetched(module: nn.Module, item: Any) -> Any:
    return attrgetter(str(item.target))(module) if isinstance(item, torch.fx.Node) else item


def _other_sign(node: torch.fx.Node) -> bool:
    """Bytes of an activation from -128 instead of from 0, or vice versa."""
    if not str(node.target).startswith(
        ("quantized_decomposed.quantize_per_tensor", "quantized_decomposed.dequantize_per_tensor")
    ):
        return False
    arguments: tuple[Any, ...] = node.args
    source, scale, *numbers, dtype = arguments
    if _is_constant(source) or dtype not in (torch.int8, torch.uint8):
        return False
    more, other = (128, torch.uint8) if dtype is torch.int8 else (-128, torch.int8)
    node.args = (source, scale, *(number + more for number in numbers), other)
    return True


class Numbers(nn.Module):
    """Products with numbers: one below 0, one above 1, one that is divided by, one that leaves no bit but the sign."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(2, 3, 4) -> four of the same shape."""
        x = x + x
        return (x * -0.75).tanh(), x * 1.5, x / 3.0, (x * 1e8).clamp(-1.0, 1.0)


def plain(quantized: torch.fx.GraphModule) -> int:
    """Give a quantized module its numbers back, which were quantized as constants, in place; returns their number.

    Its own numbers in eager are the reference, with the numbers that the integers represented.
    """
    count = 0
    for node in list(quantized.graph.nodes):
        if not str(node.target).startswith("quantized_decomposed.dequantize_per_tensor"):
            continue
        if _is_constant(node.args[0]) and (value := _value(quantized, node)).numel() == 1:
            for user in list(node.users):
                user.args = tuple(float(value) if item is node else item for item in user.args)
            count += 1
    quantized.graph.eliminate_dead_code()
    quantized.recompile()
    return count


class GivenCase(SchemeCase):
    """A module in some form, quantized by the scheme first."""

    def snippet(self, example: str, context: Context) -> str:
        """A script that tries the case again."""
        return snippet_of(self.name, context)


class RequantizedCase(GivenCase):
    """The layers with one form."""

    def __init__(self, form: str) -> None:
        self.name = f"quantized/given-{form}"
        self._form = form

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, rewrite, lower, run, compare with the rewritten module in eager."""
        return _try(scheme, context, FORMS[self._form])


class InTurnCase(GivenCase):
    """The layers with a form each, for the target that has most schemes: it stores weights as others cannot."""

    name = "quantized/given-forms-in-turn"
    no_schemes = "no target has more schemes than these options have"

    def schemes(self, context: Context) -> Sequence[str]:
        """The schemes of that target, if the run's own options have fewer."""
        names = scheme_names(_for_schemes(context))
        return names if len(names) > len(scheme_names(context)) else ()

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, rewrite, lower, run, compare with the rewritten module in eager."""
        return _try(scheme, _for_schemes(context), *_IN_TURN)


class PlainCase(GivenCase):
    """Products with numbers that are not quantized, as some quantizers leave them."""

    name = "quantized/given-plain-numbers"

    def try_scheme(self, scheme: str, context: Context) -> Outcome:
        """Quantize, rewrite, lower, run, compare with the rewritten module in eager."""
        inputs = (torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1)),)
        quantized = quantized_by(scheme, Numbers(), inputs, context)
        if isinstance(quantized, Outcome):
            return quantized
        if not plain(quantized):
            return Outcome(Verdict.NOT_APPLICABLE, f"scheme {scheme} quantizes no numbers")
        return judged(quantized, inputs, scheme, context)


def _for_schemes(context: Context) -> Context:
    """The context for the first target that has most schemes; as it is, if no target has more."""
    others = (context.beside(dict(options)) for options in other_targets(context))
    return max((context, *others), key=lambda item: len(scheme_names(item)))


def _try(scheme: str, context: Context, *forms: Weights | None) -> Outcome:
    """The outcome of the layers with these forms, quantized by a scheme first."""
    generator = torch.Generator().manual_seed(1)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in ((3, 64), (1, 4, 6, 5)))
    quantized = quantized_by(scheme, Layers(), inputs, context)
    if isinstance(quantized, Outcome):
        return quantized
    if not rewritten(quantized, *forms):
        return Outcome(Verdict.NOT_APPLICABLE, f"scheme {scheme} makes nothing that has such a form")
    return judged(quantized, inputs, scheme, context)


def cases() -> Iterator[Case]:
    """One for each form, one for several, and one for numbers."""
    for form in FORMS:
        yield RequantizedCase(form)
    yield InTurnCase()
    yield PlainCase()
