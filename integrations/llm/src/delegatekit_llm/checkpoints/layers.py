"""Linear layers whose weights come as integers: packed as a file has them, and as they are computed with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from delegatekit.quantization import torchao
from delegatekit_api import FormatError

#: Bits of a word that has several integers.
_WORD: Final = 32


@dataclass(frozen=True)
class Stored:
    """A tensor of a safetensors file by its header: "I32", "F16" and others, and sizes."""

    dtype: str
    shape: tuple[int, ...]


#: The names of types in these files.
DTYPES: Final = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I8": torch.int8,
}
#: Those of scales and biases.
FLOATS: Final = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class Form:
    """The integers of a layer: their bits, and how many of a row share a scale (None: all of them)."""

    bits: int
    group: int | None
    zero_points: bool = False
    #: True if the model rounds the layer's inputs to 8 bits in each call.
    dynamic: bool = False

    def __str__(self) -> str:
        """ "int4 in groups of 128, with zero points"."""
        scales = "with a scale for each row" if self.group is None else f"in groups of {self.group}"
        return f"int{self.bits} {scales}{', with zero points' if self.zero_points else ''}"


class PackedLinear(torch.nn.Module, ABC):
    """The tensors of a layer as its file has them. Those that are not loaded yet are on the device "meta".

    Raises FormatError, with `where`, for tensors that are missing, or of a wrong type or shape.
    """

    #: The tensor that a layer is known by.
    KEY: ClassVar[str]
    #: The name of the format in messages.
    NAME: ClassVar[str]
    bits: int
    group: int

    def __init__(
        self, stored: Mapping[str, Stored], linear: torch.nn.Linear, where: str, settings: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._settings = settings
        #: What models initialize of a layer, and what they ask for its type.
        self.weight = torch.empty(0)
        self.inputs, self.outputs, self.where = linear.in_features, linear.out_features, where
        self._stored = dict(stored)
        self._claimed: set[str] = set()
        if linear.bias is not None or "bias" in stored:
            self._claim("bias", FLOATS, (self.outputs,))
            self.bias: torch.nn.Parameter | None = torch.nn.Parameter(
                torch.empty(self.outputs, dtype=linear.weight.dtype, device="meta"), requires_grad=False
            )
        else:
            self.bias = None
        if self.KEY not in stored:
            raise self._fault(f"has no {self.KEY}")
        self._described(stored[self.KEY])
        for name, found in self._stored.items():
            if name in self._claimed and name != "bias":
                self.register_buffer(name, torch.empty(found.shape, dtype=DTYPES[found.dtype], device="meta"))

    @classmethod
    @abstractmethod
    def check(cls, settings: Mapping[str, Any], where: str) -> None:
        """Raise UnsupportedError for a `quantization_config` of another kind."""

    @classmethod
    def rounds_inputs(cls, settings: Mapping[str, Any]) -> bool:
        """True if the model rounds the inputs of its layers to 8 bits in each call, with a scale for each token."""
        return False

    @abstractmethod
    def _described(self, key: Stored) -> None:
        """Find bits and group, and check the shapes of all tensors."""

    @abstractmethod
    def read_values(self) -> torch.Tensor:
        """The integers, int8 (outputs, inputs), around 0."""

    @abstractmethod
    def read_scales(self) -> torch.Tensor:
        """Scales: float (outputs, groups)."""

    @abstractmethod
    def read_zeros(self) -> torch.Tensor | None:
        """Zero points, int8 (outputs, groups), as the integers are; None if all are 0."""

    def read_groups(self) -> torch.Tensor | None:
        """The group of each input, int64 (inputs,), where they are not in order."""
        return None

    def _claim(self, name: str, dtypes: tuple[str, ...], shape: tuple[int, ...]) -> None:
        """A tensor that must be there, of one of these types, and of this shape."""
        self._claimed.add(name)
        found = self._stored.get(name)
        if found is None:
            raise self._fault(f"has no {name}")
        if found.dtype not in dtypes or found.shape != shape:
            raise self._fault(
                f"{name} is {found.dtype} {list(found.shape)}, not {' or '.join(dtypes)} {list(shape)}, "
                f"for {self.inputs} inputs and {self.outputs} outputs"
            )

    def _fault(self, what: str) -> FormatError:
        return FormatError(
            what,
            where=self.where,
            hint=f"config.json and the weights are of different models, or these are not packed as {self.NAME} does",
        )

    def _bits_of(self, words: int, count: int) -> int:
        """The bits of integers of which `count` take so many words."""
        for bits in (4, 8):
            if words * _WORD == -(-count * bits // _WORD) * _WORD:
                return bits
        raise self._fault(f"{self.KEY} has {words} words for {count} integers, which are of neither 4 nor 8 bits")

    def _groups(self, scales: str, axis: int) -> int:
        """The number of groups, and with it the size of one."""
        found = self._stored.get(scales)
        if found is None:
            raise self._fault(f"has no {scales}")
        count = found.shape[axis] if len(found.shape) > axis else 0
        if not count or self.inputs % count:
            raise self._fault(f"has {count} scales for {self.inputs} inputs, which do not divide them")
        self.group = self.inputs // count
        return count


class IntegerLinear(torch.nn.Module):
    """A linear layer with weights (integers - zero point) * scale.

    In an exported program they are quantized weights, whose integers backends take as they are; with `numbers` they are
    numbers that are computed. What is `mapped` stays as its file has it, and is unpacked at each use.

    Raises FormatError for scales that are no numbers, and groups that there are no scales of.
    """

    integers: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    order: torch.Tensor | None
    back: torch.Tensor | None
    index: torch.Tensor | None
    shifts: torch.Tensor | None
    nothing: torch.Tensor | None

    def __init__(self, packed: PackedLinear, dtype: torch.dtype, *, mapped: bool, dynamic: bool = False) -> None:
        super().__init__()
        torchao.load("quantization.quant_primitives")  # registers the operator
        self._dynamic = dynamic
        self.in_features, self.out_features, self.dtype = packed.inputs, packed.outputs, dtype
        self.bits, self.group = packed.bits, packed.group
        self.bias = packed.bias
        #: The reason why its integers are no weight that a backend takes; "" if they are.
        self.reason = ""
        #: True if its weights are numbers of their own.
        self.numbers = False
        zeros = packed.read_zeros()
        self.has_zeros = zeros is not None and bool(zeros.any())
        scales = packed.read_scales()
        if not scales.isfinite().all():
            raise FormatError("has scales that are no numbers", where=packed.where, hint="the file is damaged")
        self.register_buffer("scales", scales if mapped else scales.float().contiguous())
        held = zeros if zeros is not None and self.has_zeros else torch.zeros((), dtype=torch.int8).expand(scales.shape)
        self.register_buffer("zeros", held.contiguous())
        #: The order of the inputs in which groups are whole, and back; the group of each, if there is none.
        self.register_buffer("order", None)
        self.register_buffer("back", None)
        self.register_buffer("index", None)
        #: Scales times zero points, and zeros instead of these, where what they make is subtracted.
        self.register_buffer("shifts", None)
        self.register_buffer("nothing", None)
        groups = packed.read_groups()
        if groups is not None:
            self._arrange(groups, packed.where)
        #: What the integers are unpacked from.
        self.packed = packed if mapped else None
        if not mapped:
            self.register_buffer("integers", self._in_order(packed.read_values()).contiguous())

    @property
    def form(self) -> Form:
        """Its integers."""
        return Form(self.bits, None if self.scales.shape[1] == 1 else self.group, self.has_zeros, self._dynamic)

    @property
    def weight(self) -> torch.Tensor:
        """The numbers of the weight: (outputs, inputs)."""
        found = self._dequantized().to(self.dtype)
        return found if self.back is None else found.index_select(1, self.back)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Inputs, (..., inputs), times the weight, and the bias: (..., outputs)."""
        if self.numbers or self.index is not None:
            return torch.nn.functional.linear(inputs, self.weight, self.bias)
        if self.order is not None:
            inputs = inputs.index_select(-1, self.order)
        half = 1 << (self.bits - 1)
        zeros = self.zeros if self.nothing is None else self.nothing
        weight = torch.ops.torchao.dequantize_affine.default(
            self._integers(), [1, self.group], self.scales.float(), zeros, torch.int8, -half, half - 1
        )
        if self.dtype is not torch.float32:
            weight = weight.to(self.dtype)
        found = torch.nn.functional.linear(inputs, weight, self.bias)
        if self.shifts is None:
            return found
        sums = inputs.reshape(*inputs.shape[:-1], -1, self.group).sum(-1)
        return found - torch.nn.functional.linear(sums, self.shifts)

    def subtract_zeros(self, scale_dtype: torch.dtype) -> None:
        """Multiply by integers without zero points, and subtract what these make: x (q - z) s = x q s - x z s.

        In a group z s is one number, by which the sum of the group's inputs is multiplied. Scales are of this type.
        """
        shifts = self.zeros.float() * self.scales.to(scale_dtype).float()
        self.register_buffer("shifts", shifts.to(self.dtype))
        self.register_buffer("nothing", torch.zeros_like(self.zeros))

    def _dequantized(self) -> torch.Tensor:
        integers, scales, zeros = self._integers().float(), self.scales.float(), self.zeros
        if self.index is not None:
            return (integers - zeros.index_select(1, self.index)) * scales.index_select(1, self.index)
        grouped = integers.view(self.out_features, -1, self.group)
        return ((grouped - zeros.unsqueeze(-1)) * scales.unsqueeze(-1)).view(self.out_features, self.in_features)

    def _integers(self) -> torch.Tensor:
        return self.integers if self.packed is None else self._in_order(self.packed.read_values())

    def _in_order(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.order is None else values.index_select(1, self.order)

    def _arrange(self, groups: torch.Tensor, where: str) -> None:
        count = self.scales.shape[1]
        low, high = (int(end) for end in groups.aminmax())
        if low < 0 or high >= count:
            raise FormatError(
                f"puts inputs into the groups {low} to {high}, and has scales of {count}",
                where=where,
                hint="g_idx is damaged, or of another layer",
            )
        sizes = torch.bincount(groups, minlength=count)
        if bool((sizes != self.group).any()):
            self.reason = f"its groups are not all of {self.group} inputs"
            self.register_buffer("index", groups)
            return
        order = groups.argsort(stable=True)
        if not torch.equal(order, torch.arange(len(order))):
            self.register_buffer("order", order)
            self.register_buffer("back", order.argsort())


def unpacked(
    words: torch.Tensor, bits: int, axis: int, *, order: Sequence[int] | None = None, add: int = 0
) -> torch.Tensor:
    """The integers of words of 32 bits along an axis, int8 around 0.

    The first has the lowest bits, or with `order` those at the first place of it. Before they are moved around 0, `add`
    is added to them, modulo their range.
    """
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    parts = []
    for place in order or range(_WORD // bits):
        found = torch.bitwise_and(torch.bitwise_right_shift(words, place * bits), mask)
        if add:
            found = torch.bitwise_and(found + add, mask)
        parts.append((found - half).to(torch.int8))
    return torch.stack(parts, axis + 1).flatten(axis, axis + 1)


def integer_layers(model: torch.nn.Module) -> Iterator[tuple[str, IntegerLinear]]:
    """The layers with integers, by their paths."""
    for path, module in model.named_modules():
        if isinstance(module, IntegerLinear):
            yield path, module


def forms(model: torch.nn.Module) -> Counter[Form]:
    """The forms of the weights that come as integers, with the number of layers."""
    found: Counter[Form] = Counter(layer.form for _, layer in integer_layers(model) if not layer.numbers)
    for module in model.modules():
        weight: Any = getattr(module, "_parameters", {}).get("weight")
        if isinstance(module, torch.nn.Linear) and (form := form_of(weight)) is not None:
            found[form] += 1
    return found


def form_of(weight: Any) -> Form | None:
    """The integers of a tensor that torchao's `quantize_` made; None for another."""
    if type(weight).__name__ != "IntxUnpackedToInt8Tensor":
        return None
    bits = int(str(weight.target_dtype).rpartition("int")[2])
    group = int(weight.block_size[-1])
    zeros = weight.zero_point is not None and bool(weight.zero_point.any())
    return Form(bits, None if group == weight.shape[-1] else group, zeros, weight.activation_quantization is not None)
