"""The operators of the dtype sweep as data: their operands and element types.

A case is (operator, dtypes): the names of the element types of its tensors, in order. See `test_dtypes.py`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

DTYPES: dict[str, torch.dtype] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "bool": torch.bool,
}
FLOAT = "f16 bf16 f32 f64"
INT = "i8 i16 i32 i64 u8"
NUMBER = f"{FLOAT} {INT}"
ALL = f"{NUMBER} bool"
BITS = f"{INT} bool"

#: Pairs that represent every kind of promotion: within a category, across categories, both ways round.
MIXED = (
    "f16,f32 f32,f16 bf16,f16 f16,bf16 f32,f64 bf16,f32 f32,i64 i64,f32 f16,i32 i8,bf16 f64,bool u8,f16 "
    "i8,u8 u8,i8 i8,i16 i32,i64 i64,i32 u8,i64 i16,u8 bool,i8 i64,bool bool,f32 bool,f16 u8,bool"
)
WHOLE_MIXED = "i8,u8 u8,i8 i8,i16 i32,i64 i64,i32 u8,i64 i16,u8 bool,i8 i64,bool u8,bool"
FLOAT_MIXED = "f16,f32 f32,f16 bf16,f16 f32,f64 bf16,f32"


@dataclass(frozen=True)
class T:
    """A tensor operand: its shape, and the distribution of its values. `dtype` None is the case's dtype.

    `like`: "any" (within a few units of 0, negative too if the dtype can be), "positive", "unit" (-0.9 to 0.9),
    "odd" (with infinities, NaN and -0.0 if the dtype has them), "index:n" (0 to n - 1), "shift" (0 to 5),
    "small" (0 to 3), "wide" (-100 to 100), "close" (neighbors that only this dtype, no narrower one, can tell apart).
    """

    shape: tuple[int, ...] = (2, 3, 4)
    like: str = "any"
    dtype: str | None = None
    seed: int = 0

    def make(self, dtype: str) -> torch.Tensor:
        """The tensor, the same in every run."""
        wanted = DTYPES[self.dtype or dtype]
        generator = torch.Generator().manual_seed(self.seed + 7 * len(self.shape) + math.prod(self.shape))
        noise = torch.randn(self.shape, generator=generator, dtype=torch.float64)
        kind, _, number = self.like.partition(":")
        if kind == "index":
            return torch.randint(0, int(number), self.shape, generator=generator).to(wanted)
        if kind == "shift":
            return (noise.abs() * 3).clamp(0, 5).to(wanted)
        if kind == "wide":
            return (40 * noise).clamp(-100, 100).to(wanted)
        if kind == "small":
            return (noise.abs() * 2).clamp(0, 3).round().to(wanted)
        if kind == "close":
            steps = (3 * noise).round().to(torch.int64)
            if wanted.is_floating_point:
                return (1 + steps * torch.finfo(wanted).eps * 4).to(wanted)
            return (torch.iinfo(wanted).max - 100 + steps).to(wanted)
        if wanted == torch.bool:
            return noise > 0
        if not wanted.is_floating_point:
            values = (3 * noise).round()
            values = values.abs() if wanted == torch.uint8 else values
            return (values.abs() + 1 if kind == "positive" else values.clamp(-1, 1) if kind == "unit" else values).to(
                wanted
            )
        if kind == "positive":
            noise = noise.abs() + 0.1
        elif kind == "unit":
            noise = noise.tanh() * 0.9
        elif kind == "odd":
            flat = noise.flatten()
            flat[:5] = torch.tensor([math.inf, -math.inf, math.nan, -0.0, 0.0], dtype=torch.float64)
        else:
            noise = 2 * noise
        return noise.to(wanted)


@dataclass(frozen=True)
class Operator:
    """A callable, its operands, and the dtypes (or comma-joined dtypes of the operands) to call it with."""

    call: Callable[..., Any]
    operands: tuple[T, ...]
    dtypes: str
    #: Roundings of the dtype by which a result may differ from eager's; more for sums over many terms.
    roundings: float = 2.0

    #: Expect the result of eager in float32: eager itself rounds positions to the narrow dtype, the runtime does not.
    wide: bool = False

    @property
    def cases(self) -> list[str]:
        """The dtypes of each case."""
        return list(dict.fromkeys(self.dtypes.split()))

    def expected(self, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """The result of eager, flat."""
        with torch.no_grad():
            if not self.wide:
                return tree_leaves(self.call(*inputs))
            results = tree_leaves(self.call(*(given.float() for given in inputs)))
            return [result.to(inputs[0].dtype) for result in results]

    def inputs(self, dtypes: str) -> tuple[torch.Tensor, ...]:
        """The operands for a case; a single name is every operand's dtype."""
        names = dtypes.split(",")
        return tuple(operand.make(names[min(number, len(names) - 1)]) for number, operand in enumerate(self.operands))


X, Y = T(), T(seed=1)
POSITIVE, UNIT, ODD = T(like="positive"), T(like="unit"), T(like="odd")
IMAGE = T((1, 4, 6, 6))
MATRIX = T((4, 5))
MASK = T(dtype="bool")
OPERATORS: dict[str, Operator] = {}


def _add(name: str, call: Callable[..., Any], operands: Sequence[T], dtypes: str, roundings: float = 2.0) -> None:
    assert name not in OPERATORS, name
    OPERATORS[name] = Operator(call, tuple(operands), dtypes, roundings)


# -- one tensor, element by element ----------------------------------------------------------------------------------

for _name in [
    "asinh",
    "atan",
    "cos",
    "erf",
    "exp",
    "expm1",
    "sigmoid",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "cosh",
    "exp2",
    "erfc",
    "rad2deg",
    "sinc",
]:
    _add(_name, getattr(torch, _name), [X], ALL, 4.0)
for _name in ["acos", "asin", "atanh"]:
    _add(_name, getattr(torch, _name), [UNIT], ALL)
for _name in ["acosh", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt", "lgamma"]:
    _add(_name, getattr(torch, _name), [POSITIVE], ALL)
for _name in ["abs", "ceil", "floor", "round", "trunc", "neg", "sign", "square", "signbit"]:
    _add(_name, getattr(torch, _name), [ODD], NUMBER)
_add("round to decimals", lambda x: torch.round(x, decimals=1), [X], FLOAT)
_add("round to tens", lambda x: torch.round(10 * x, decimals=-1), [X], FLOAT)
for _name in ["isinf", "isnan", "isfinite", "logical_not", "isposinf", "isneginf"]:
    _add(_name, getattr(torch, _name), [ODD], ALL)
_add("bitwise_not", torch.bitwise_not, [X], BITS)
_add("frac", torch.frac, [X], FLOAT)
_add("nan_to_num", torch.nan_to_num, [ODD], ALL)
_add("logit", lambda x: torch.logit(x, 0.1), [POSITIVE], ALL)
for _name in [
    "relu",
    "relu6",
    "gelu",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "silu",
    "mish",
    "softplus",
    "hardtanh",
    "hardswish",
    "hardsigmoid",
    "softsign",
    "logsigmoid",
    "tanhshrink",
    "hardshrink",
    "softshrink",
]:
    _add(_name, getattr(F, _name), [X], FLOAT, 8.0 if _name in {"selu", "celu", "elu"} else 4.0)
_add(
    "activations of odd values",
    lambda x: (
        F.relu(x),
        F.relu6(x),
        F.leaky_relu(x),
        F.sigmoid(x),
        F.tanh(x),
        F.hardtanh(x),
        F.hardswish(x),
        F.silu(x),
        F.elu(x),
    ),
    [ODD],
    FLOAT,
    4.0,
)
_add(
    "functions of odd values",
    lambda x: (
        x.exp(),
        x.log(),
        x.sqrt(),
        x.abs(),
        x.rsqrt(),
        x.sin(),
        x.erf(),
        x**2,
        x**0.5,
        x.reciprocal(),
        x.expm1(),
        x.logit(),
        x.atan(),
    ),
    [ODD],
    FLOAT,
    4.0,
)
_add("gelu by tanh", lambda x: F.gelu(x, approximate="tanh"), [X], FLOAT, 4.0)
_add("relu of numbers", F.relu, [X], INT)
_add("hardtanh of numbers", lambda x: F.hardtanh(x, -2, 3), [X], "i8 i16 i32 i64")
_add("threshold", lambda x: F.threshold(x, 1, -2), [X], "f16 bf16 f32 f64 i8 i16 i32 i64")
_add("prelu", F.prelu, [IMAGE, T((4,))], FLOAT)
_add("glu", lambda x: F.glu(x, -1), [X], FLOAT, 4.0)
_add("clamp", lambda x: x.clamp(-1, 2), [X], "f16 bf16 f32 f64 i8 i16 i32 i64")
_add("clamp from below", lambda x: x.clamp(min=1), [X], NUMBER)
_add("clamp from above", lambda x: x.clamp(max=1), [X], NUMBER)
_add("clamp by fractions", lambda x: x.clamp(0.5, 2.5), [X], NUMBER)
_add("clamp by tensors", lambda x, y: torch.clamp(x, y - 1, y + 1), [X, Y], NUMBER)
_add("clamp by tensors of another dtype", torch.clamp, [X, Y], MIXED)
_add("clamp, odd values", lambda x: x.clamp(-1, 2), [ODD], FLOAT)

# -- two tensors -----------------------------------------------------------------------------------------------------

_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
_BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "div": torch.div,
    "atan2": torch.atan2,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "floor_divide": torch.floor_divide,
    "div, truncated": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "pow": torch.pow,
    **{
        name: getattr(torch, name)
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]
    },
    "where": lambda x, y: torch.where(x > y, x, y),
}
_NOT_BOOL = {"floor_divide", "div, truncated", "fmod", "remainder", "pow", "sub"}
_NO_ZERO = {"fmod", "remainder", "floor_divide", "div, truncated", "div"}
for _name, _call in _BINARY.items():
    _second = T(like="positive", seed=1) if _name in _NO_ZERO else T(like="small", seed=1) if _name == "pow" else Y
    _first = POSITIVE if _name == "pow" else X
    _one = NUMBER if _name in _NOT_BOOL else ALL
    _pairs = MIXED
    if _name in _NOT_BOOL:
        _pairs = MIXED.replace("i64,bool ", "").replace(" u8,bool", "")
    _add(_name, _call, [_first, _second], f"{_one} {_pairs}", 4.0)
_add("sub", torch.sub, [X, Y], f"{NUMBER} " + " ".join(pair for pair in MIXED.split() if "bool" not in pair))
_add("add, True", lambda x: torch.add(x, True), [X], ALL)
_add("add, scaled", lambda x, y: torch.add(x, y, alpha=3), [X, Y], f"{NUMBER} {MIXED}")
_add(
    "add, scaled by a fraction",
    lambda x, y: torch.add(x, y, alpha=2.5),
    [X, Y],
    f"{FLOAT} {FLOAT_MIXED} f32,i64 i8,bf16",
)
_add("sub, scaled", lambda x, y: torch.sub(x, y, alpha=2), [X, Y], f"{NUMBER} f16,f32 f32,i64 i64,f32 i8,u8 i32,i64")
_add("division by zero", lambda x, y: x / (y * 0), [X, Y], f"{FLOAT} i32 i64 i8")
_add("maximum of odd values", torch.maximum, [ODD, Y], FLOAT)
_add("minimum of odd values", torch.minimum, [Y, ODD], FLOAT)
_add("comparisons of odd values", lambda x, y: (x < y, x != -x, x == x.abs(), x >= y), [ODD, Y], FLOAT)
_add("division, floored, odd", lambda x, y: torch.div(x, y, rounding_mode="floor"), [ODD, Y], FLOAT)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    _add(_name, getattr(torch, _name), [X, Y], f"{BITS} {WHOLE_MIXED}")
for _name in ["bitwise_left_shift", "bitwise_right_shift"]:
    _add(_name, getattr(torch, _name), [X, T(like="shift", seed=1)], f"{INT} i8,i32 i64,i32 u8,i16")
for _name in ["fmin", "fmax"]:
    _add(_name, getattr(torch, _name), [X, Y], f"{NUMBER} f32,i64 f16,f32 i8,i64")
_add("copysign", torch.copysign, [X, Y], f"{NUMBER} f32,i64 i64,f32")
_add("hypot", torch.hypot, [X, Y], FLOAT)
_add(
    "hypot of odd values", lambda x, y: (torch.hypot(x, y), torch.hypot(x, y * float("nan"))), [ODD, Y], "f32 f16 bf16"
)
_add("logaddexp", torch.logaddexp, [X, Y], FLOAT, 4.0)
_add("xlogy", torch.xlogy, [POSITIVE, T(like="positive", seed=1)], f"{NUMBER} f32,i64 i64,f32")
_add("lerp", lambda x, y: torch.lerp(x, y, 0.3), [X, Y], FLOAT)
_add("isclose", torch.isclose, [X, Y], NUMBER)
_add("heaviside", torch.heaviside, [X, Y], NUMBER)
_add("float_power", torch.float_power, [POSITIVE, T(like="small", seed=1)], f"{NUMBER} f32,i64")
_add("addcmul", lambda x, y: torch.addcmul(x, x, y, value=2), [X, Y], NUMBER, 4.0)
_add("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=2), [X, T(like="positive")], FLOAT, 4.0)
_add("where by a mask", torch.where, [MASK, X, Y], f"{ALL} " + " ".join(f"bool,{pair}" for pair in MIXED.split()))
_add("where by bytes", lambda x, y: torch.where(x.to(torch.bool), y, 0), [T(dtype="u8"), Y], ALL)

CLOSE, CLOSE_TOO = T(like="close"), T(like="close", seed=1)
_WIDE = "f64 i32 i64 f16 f32 i16"
for _name in [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "maximum",
    "minimum",
    "where",
    "sub",
    "add",
    "mul",
]:
    _add(
        f"{_name} of close values",
        _BINARY.get(_name, torch.sub),
        [CLOSE, CLOSE_TOO],
        f"{_WIDE} f32,f64 i64,f64 i32,i64 i32,f32",
    )
for _name in ("div", "div, truncated", "floor_divide", "fmod", "remainder"):
    _add(f"{_name} of close values", _BINARY[_name], [CLOSE, T(like="positive", seed=1)], f"{_WIDE} i64,i8 f64,f32")
_add(
    "large integers",
    lambda x: (
        x + 3,
        x - 3,
        x * 3,
        5 - x,
        x // 7,
        -x,
        x.abs(),
        x.clamp(max=2**62 + 1),
        x.square(),
        torch.div(x, 7, rounding_mode="trunc"),
        torch.fmod(x, 7),
        x % 7,
        x**3,
        x.to(torch.float64),
        x.to(torch.int32),
        x.to(torch.float32),
        torch.where(x > 5, x, 2**62 + 1),
        F.relu(x),
        x.sign(),
    ),
    [CLOSE],
    "i64",
)
_add("large integers, compared", lambda x: (x == 2**63 - 101, x < 2**63 - 101, x >= 2**63 - 101), [CLOSE], "i64")
_add(
    "large integers, reduced",
    lambda x: (x.sum(1), x.amax(1), x.amin(1), x.max(1), x.argmax(1), x.cumsum(1), x.prod(1), x.any()),
    [CLOSE],
    "i64 i32",
)
_add(
    "large integers in bits",
    lambda x, y: (
        x & y,
        x | y,
        x ^ y,
        ~x,
        x & (2**62 + 1),
        torch.bitwise_left_shift(x, 1),
        torch.bitwise_right_shift(x, y * 0 + 3),
    ),
    [CLOSE, CLOSE_TOO],
    "i64",
)
_add(
    "close numbers",
    lambda x: (
        x + 2.0**-50,
        x * (1 + 2.0**-50),
        x == 1.0 + 2.0**-50,
        x < 1.0 + 2.0**-50,
        x.clamp(1 + 2.0**-50, 2),
        x - 1,
    ),
    [CLOSE],
    "f64",
)
_add(
    "close values, reduced",
    lambda x: (x.amax(1), x.argmax(1), x.mean(1) - 1, x.cumsum(1) - 1, x.var(1), x.prod(1) - 1, x.max(1)),
    [CLOSE],
    "f64",
    64.0,
)
_add(
    "close values in functions",
    lambda x: (
        x.exp(),
        x.log(),
        x.sqrt(),
        x.rsqrt(),
        x.sin(),
        x.tanh(),
        x.sigmoid(),
        x.erf(),
        x.pow(3),
        x.reciprocal(),
        x.atan2(x),
        x.softmax(0),
        x.relu(),
        F.gelu(x),
        F.leaky_relu(-x),
        F.elu(-x),
        F.hardtanh(x, 0, 1 + 2.0**-50),
        x.log1p(),
        x.expm1(),
    ),
    [CLOSE],
    "f64",
)
_add(
    "close values, moved",
    lambda x: (
        F.pad(x, (1, 1), value=1 + 2.0**-50),
        x.masked_fill(x > 1, 1 + 2.0**-50),
        x.scatter(1, torch.zeros(2, 1, 4, dtype=torch.int64), 1 + 2.0**-50),
        torch.full((2,), 1 + 2.0**-50, dtype=torch.float64) * x[0, 0, 0],
    ),
    [CLOSE],
    "f64",
)

# -- a tensor and a number -------------------------------------------------------------------------------------------

_NUMBERS: dict[str, Any] = {"3": 3, "-2": -2, "0.5": 0.5, "True": True}
for _text, _number in _NUMBERS.items():
    _add(f"x + {_text}", lambda x, n=_number: (x + n, n + x), [X], ALL)
    _add(f"x * {_text}", lambda x, n=_number: (x * n, n * x), [X], ALL)
    _add(f"x / {_text}", lambda x, n=_number: x / n, [X], ALL)
    _add(f"x == {_text}", lambda x, n=_number: (x == n, x < n, x >= n, n > x, n <= x, x != n), [X], ALL)
    _add(
        f"where(m, x, {_text})",
        lambda m, x, n=_number: (torch.where(m, x, n), torch.where(m, n, x)),
        [MASK, X],
        " ".join(f"bool,{name}" for name in ALL.split()),
    )
    if _text != "True":
        _add(f"x - {_text}", lambda x, n=_number: (x - n, n - x), [X], NUMBER)
        _add(f"x // {_text}", lambda x, n=_number: x // n, [X], NUMBER)
        _add(f"x % {_text}", lambda x, n=_number: x % n, [X], NUMBER)
        _add(f"fmod(x, {_text})", lambda x, n=_number: torch.fmod(x, n), [X], NUMBER)
        _add(f"div(x, {_text}), truncated", lambda x, n=_number: torch.div(x, n, rounding_mode="trunc"), [X], NUMBER)
        _add(
            f"masked_fill {_text}",
            lambda m, x, n=_number: x.masked_fill(m, n),
            [MASK, X],
            " ".join(
                f"bool,{name}"
                for name in (
                    ALL if _text == "3" else FLOAT if _text == "0.5" else "f16 bf16 f32 f64 i8 i16 i32 i64"
                ).split()
            ),
        )
_add("x / 0", lambda x: x / 0, [X], ALL)
_add("x ** 2", lambda x: x**2, [X], NUMBER, 4.0)
_add("x ** 3", lambda x: x**3, [X], NUMBER, 4.0)
_add("x ** 0.5", lambda x: x**0.5, [POSITIVE], NUMBER)
_add("x ** -1", lambda x: x**-1, [POSITIVE], FLOAT)
_add("x ** -0.5", lambda x: x**-0.5, [POSITIVE], NUMBER)
_add("2 ** x", lambda x: 2**x, [T(like="small")], NUMBER, 4.0)
_add("powers of two", lambda x: (2**x, 4**x, 2 ** (x - 3), 2 ** (x * 30)), [T(like="small")], "i64 i32")
_add("0.5 ** x", lambda x: 0.5**x, [T(like="small")], NUMBER, 4.0)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    _add(f"{_name} with a number", lambda x, f=_name: getattr(torch, f)(x, 6), [X], INT)
    _add(f"{_name} with True", lambda x, f=_name: getattr(torch, f)(x, True), [X], BITS)
_COUNTS = torch.tensor([-1, -2, 0, 1, 7, 8, 15, 16, 31, 32, 63, 64, 100])
_add(
    "shifts out of the type",
    lambda x: (x << _COUNTS.to(x.dtype), x >> _COUNTS.to(x.dtype)),
    [T((13,))],
    "i8 i16 i32 i64",
)
_add(
    "unknown shifts out of the type",
    lambda x, n: (x << n, x >> n, 3 << n, -3 >> n, x << 70, x >> -1),
    [T((40,)), T((40,), "wide")],
    "i8 i16 i32 i64",
)
_add("x << 2", lambda x: x << 2, [X], INT)
_add("x >> 1", lambda x: x >> 1, [X], INT)
_add("1 << x", lambda x: 1 << x, [T(like="shift")], INT)
_add("maximum with a number", lambda x: torch.maximum(x, torch.tensor(1)), [X], ALL)

# -- tensors of no dimensions: weak in promotion ---------------------------------------------------------------------

_SCALARS = "f32,f64 f16,f32 bf16,f64 i64,f32 i32,f64 i8,i64 u8,i64 bool,i64 bool,f32 f32,i64 f16,i64 u8,i8 i64,bool"
for _name in ["add", "mul", "div", "maximum", "minimum", "eq", "lt", "pow", "atan2"]:
    _add(f"{_name}, no dimensions", getattr(torch, _name), [POSITIVE, T((), "small", seed=1)], _SCALARS, 4.0)
    _add(
        f"{_name}, no dimensions first",
        lambda x, y, f=_name: getattr(torch, f)(y, x),
        [POSITIVE, T((), "positive", seed=1)],
        _SCALARS,
        4.0,
    )
_add("sub, no dimensions", torch.sub, [X, T(())], " ".join(pair for pair in _SCALARS.split() if "bool" not in pair))
_add("where, no dimensions", torch.where, [MASK, X, T(())], " ".join(f"bool,{pair}" for pair in _SCALARS.split()))
_add("two of no dimensions", lambda x, y: (x + y, x * y, x < y, torch.maximum(x, y)), [T(()), T(())], f"{ALL} {MIXED}")
_add("a constant of no dimensions", lambda x: (x + torch.tensor(2.5), x * torch.tensor(3)), [X], ALL)
_add("one of no dimensions", lambda x: (x.sum(), x.exp(), x.view(1), x.abs()), [T(())], NUMBER)

_CLOSE_PAIRS = "f32,f64 f64,f32 f16,f32 f32,f16 i64,f64 f64,i64 i32,f32 i32,i64 i64,i32 i8,i64 bf16,f64 i16,f16"
for _name in [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "maximum",
    "minimum",
    "where",
    "add",
    "mul",
    "div",
    "fmod",
    "remainder",
    "atan2",
    "floor_divide",
    "div, truncated",
]:
    _one = T((), "positive", seed=5) if _name in _NO_ZERO else T((), "close", seed=5)
    _add(f"{_name} of close values, no dimensions", _BINARY[_name], [T((40,), "close"), _one], _CLOSE_PAIRS)
    _add(
        f"{_name} of close values, no dimensions first",
        lambda x, y, f=_BINARY[_name]: f(y, x),
        [T((40,), "positive"), T((), "close")],
        _CLOSE_PAIRS,
    )
    _add(f"{_name} of close values, two of no dimensions", _BINARY[_name], [T((), "close"), _one], _CLOSE_PAIRS)
for _name, _number in {"0.1": 0.1, "3.001": 3.001}.items():
    _add(
        f"numbers that narrow dtypes round, {_name}",
        lambda x, n=_number: (
            x + n,
            x - n,
            n - x,
            x * n,
            x / n,
            torch.fmod(x, n),
            x % n,
            x // n,
            x == n,
            x < n,
            x >= n,
        ),
        [T((400,))],
        f"{FLOAT} i64 i8",
        1.5,
    )
_add(
    "numbers that narrow dtypes do not hold",
    lambda x: (x + 100000, 100000 - x, x > 100000, x < -100000, x + math.nan, x.ne(math.nan), x % math.inf),
    [X],
    FLOAT,
)
_add("a number in front", lambda x: (7 % x, 7 // x, torch.div(7, x, rounding_mode="trunc")), [POSITIVE], NUMBER)
_add(
    "a number in front of bits",
    lambda x: (torch.bitwise_and(5, x), torch.bitwise_or(5, x), torch.bitwise_xor(5, x)),
    [X],
    INT,
)

# -- reductions ------------------------------------------------------------------------------------------------------

_add("sum", lambda x: (x.sum(), x.sum(1), x.sum((0, -1), keepdim=True)), [X], ALL, 8.0)
for _name, _target in DTYPES.items():
    _add(f"sum in {_name}", lambda x, d=_target: x.sum(1, dtype=d), [X], ALL, 8.0)
_add("sum of nothing", lambda x: (x[:, :0].sum(1), x[:0].sum()), [X], ALL)
_add("mean", lambda x: (x.mean(), x.mean(1), x.mean((0, -1), keepdim=True)), [X], FLOAT, 8.0)
for _name in FLOAT.split():
    _add(f"mean in {_name}", lambda x, d=DTYPES[_name]: x.mean(1, dtype=d), [X], ALL, 8.0)
_add("amax", lambda x: (x.amax(), x.amax(1), x.amax((0, 2), keepdim=True)), [X], ALL)
_add("amin", lambda x: (x.amin(), x.amin(1), x.amin((0, 2), keepdim=True)), [X], ALL)
_add("max", lambda x: x.max(), [X], ALL)
_add("min", lambda x: x.min(), [X], ALL)
_add("max along a dim", lambda x: x.max(1), [X], ALL)
_add("min along a dim", lambda x: x.min(-1, keepdim=True), [X], ALL)
_add("max of odd values", lambda x: (x.amax(1), x.max(2), x.argmax(0)), [ODD], FLOAT)
_add("aminmax", lambda x: x.aminmax(dim=1), [X], ALL)
_add("argmax", lambda x: (x.argmax(), x.argmax(1), x.argmax(-1, keepdim=True)), [X], NUMBER)
_add("argmin", lambda x: (x.argmin(), x.argmin(1), x.argmin(-1, keepdim=True)), [X], NUMBER)
_add("any", lambda x: (x.any(), x.any(1), x.any((0, 2), keepdim=True)), [X], ALL)
_add("all", lambda x: (x.all(), x.all(1), x.all(-1, keepdim=True)), [X], ALL)
_add("any of no dimensions", lambda x: (x.any(), x.all()), [T(())], ALL)
_add("prod", lambda x: (x.prod(), x.prod(1), x.prod(-1, keepdim=True)), [T(like="small")], ALL, 8.0)
_add("prod in f32", lambda x: x.prod(1, dtype=torch.float32), [T(like="small")], ALL, 8.0)
_add("var", lambda x: (x.var(), x.var(1), x.var((0, 2), correction=0, keepdim=True)), [X], FLOAT, 8.0)
_add("std", lambda x: (x.std(), x.std(1, unbiased=False)), [X], FLOAT, 8.0)
_add("var_mean", lambda x: torch.var_mean(x, 1), [X], FLOAT, 8.0)
_add("cumsum", lambda x: x.cumsum(1), [X], ALL, 8.0)
for _name in ["f16", "f32", "f64", "i32", "i64"]:
    _add(f"cumsum in {_name}", lambda x, d=DTYPES[_name]: x.cumsum(-1, dtype=d), [X], ALL, 8.0)
_add("cumprod", lambda x: x.cumprod(1), [T(like="small")], ALL, 8.0)
_add("topk", lambda x: x.topk(3, dim=-1), [T((2, 3, 7))], FLOAT)
_add("topk of numbers", lambda x: x.topk(2, dim=-1).values, [X], INT)
_add("the smallest two", lambda x: x.topk(2, dim=1, largest=False), [T((2, 5, 3))], FLOAT)
_add("sort", lambda x: x.sort(-1), [X], FLOAT)
_add("sort of odd values", lambda x: (x.sort(1).values, x.sort(1, descending=True).values), [ODD], FLOAT)
_add("sort of numbers", lambda x: (x.sort(1).values, x.msort()), [X], ALL)
_add("sort, stable", lambda x: x.sort(stable=True), [X], "f32 i64")
_add("argsort", lambda x: (x.argsort(-1), x.argsort(1, descending=True)), [T((3, 7))], FLOAT)
_add("norm", lambda x: torch.linalg.vector_norm(x, dim=-1), [X], FLOAT, 8.0)
_add("norm 1", lambda x: torch.linalg.vector_norm(x, ord=1, dim=(0, 1)), [X], FLOAT, 8.0)
_add("logsumexp", lambda x: x.logsumexp(1), [X], FLOAT, 8.0)
_add("count_nonzero", lambda x: x.count_nonzero(1), [X], ALL)
_add("normalize", lambda x: F.normalize(x, dim=-1), [X], FLOAT, 8.0)

# -- shapes, parts and positions -------------------------------------------------------------------------------------

_add("permute", lambda x: (x.permute(2, 0, 1), x.transpose(0, 1).reshape(3, -1), x.mT), [X], ALL)
_add("expand", lambda x: (x[:, :1].expand(-1, 5, -1), x.unsqueeze(1).repeat(1, 2, 1, 3), x.tile(2)), [X], ALL)
_add("flip", lambda x: (x.flip([0, 2]), x.roll([1, -1], [1, 2]), x.roll(2)), [X], ALL)
_add("rot90", lambda x: x.rot90(1, [1, 2]), [X], ALL)
_add("slice", lambda x: (x[:, 0:3:2, -3:], x[1], x[..., None, -1]), [X], ALL)
_add("split", lambda x: (*torch.split(x, [1, 2], 1), *torch.unbind(x, 1), *x.chunk(2, -1)), [X], ALL)
_add("cat", lambda x, y: (torch.cat([x, y, x], -1), torch.stack([x, y], 1)), [X, Y], f"{ALL} {MIXED}")
_add(
    "cat of nothing",
    lambda x: (torch.cat([x[:, :0], x], 1), torch.cat([torch.empty(0), x], 1)),
    [X],
    "f32 f16 i64 bool",
)
_add("pad", lambda x: F.pad(x, (1, 0, 2, 1), value=1), [X], ALL)
_add("pad and cut", lambda x: F.pad(x, (-1, 2, 1, -2), value=3.0), [X], NUMBER)
_add("pad by reflection", lambda x: F.pad(x, (1, 2), mode="reflect"), [X], NUMBER)
_add("pad by repetition", lambda x: F.pad(x, (1, 2), mode="replicate"), [X], FLOAT)
_add("pad around", lambda x: F.pad(x, (1, 2), mode="circular"), [X], ALL)
_add(
    "pad images",
    lambda x: (F.pad(x, (1, 2, 2, 0), mode="reflect"), F.pad(x, (1, 2, 2, 0), mode="replicate")),
    [IMAGE],
    FLOAT,
)
_add("triangles", lambda x: (x.tril(-1), x.triu(1), x.tril(), x.triu(-1)), [X], ALL)
_add("diagonal", lambda x: (x.diagonal(0, 1, 2), x.diagonal(1, 0, -1), x[0].diag()), [X], ALL)
_add("diag", lambda x: (x.diag(), x.diag_embed(), x.diag(1)), [T((4,))], ALL)
_add("trace", lambda x: x.trace(), [MATRIX], FLOAT, 4.0)
_add("unfold", lambda x: (x.unfold(2, 2, 1), x.unfold(1, 3, 2)), [X], ALL)
_add("unfold images", lambda x: F.unfold(x, 3, padding=1, stride=2), [IMAGE], FLOAT)
_add("fold images", lambda x: F.fold(x, (4, 4), 2, stride=2), [T((1, 8, 4))], FLOAT)
_add("as_strided", lambda x: (x.as_strided((3, 2), (2, 5), 1), x.as_strided((2, 2, 2), (0, 1, 3))), [X], ALL)
_add("pixel shuffle", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 3), F.channel_shuffle(x, 2)), [IMAGE], ALL)
_add("repeat_interleave", lambda x: x.repeat_interleave(2, 1), [X], ALL)
_add("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), [T((3,)), T((2,))], ALL)
_add("slice assignment", lambda x, y: x.slice_scatter(y[:, :2], 1, 0, 3, 2), [X, Y], ALL)
_add("select assignment", lambda x, y: x.select_scatter(y[:, 0], 1, -1), [X, Y], ALL)
_add("movedim", lambda x: (x.movedim(0, 2), x.unflatten(2, (2, 2)), x.flatten(1)), [X], ALL)
for _name, _target in DTYPES.items():
    _add(f"to {_name}", lambda x, d=_target: x.to(d), [T(like="positive") if _name == "u8" else X], ALL)
_add("odd values to bool", lambda x: x.to(torch.bool), [ODD], FLOAT)

# -- picking and placing ---------------------------------------------------------------------------------------------

INDEX = T((4,), "index:3")
_INDEXED = " ".join(f"{name},i64" for name in ALL.split()) + " f32,i32 i8,i32"
_add("index", lambda x, i: (x[:, i], x[:, i, i], x[i.clamp(max=1)], x[..., i]), [X, INDEX], _INDEXED)
_add("index, two apart", lambda x, i: x[i.clamp(max=1), :, i], [X, INDEX], _INDEXED)
_add("index from behind", lambda x, i: x[:, i - 3], [X, INDEX], "f32,i64 i8,i64")
_add(
    "index by a known mask",
    lambda x: (x[:, torch.tensor([True, False, True])], x[torch.tensor([False, True])]),
    [X],
    "f32 i8",
)
_add("index by a mask", lambda x, m: x[m], [X, MASK], "f32 i64")
_add("index_select", lambda x, i: x.index_select(1, i), [X, INDEX], _INDEXED)
_add("take", lambda x, i: x.take(i), [X, INDEX], "f32,i64 i8,i64")
_add("gather", lambda x, i: x.gather(1, i), [X, T((2, 2, 4), "index:3", "i64")], ALL)
_add("take_along_dim", lambda x, i: x.take_along_dim(i, 2), [X, T((2, 3, 1), "index:3", "i64")], ALL)
_add(
    "index_put",
    lambda x, i, y: (x.index_put((i,), y[0]), torch.ops.aten.index_put(x, (None, i), y[:, :1])),
    [X, T((1,), "index:2", "i64"), Y],
    ALL,
)
_add("index_put by a mask", lambda x, m: x.index_put((m,), torch.ones((), dtype=x.dtype)), [X, MASK], ALL)
_add(
    "index_put, accumulated",
    lambda x, i, y: x.index_put((i,), y[0], accumulate=True),
    [X, T((3,), "index:2", "i64"), T((1, 3, 4))],
    NUMBER,
)
_add("index_add", lambda x, i, y: x.index_add(1, i, y), [X, T((3,), "index:3", "i64"), Y], NUMBER)
_add(
    "index_copy",
    lambda x, i, y: x.index_copy(1, torch.tensor([2, 0, 1]) + 0 * i, y),
    [X, T((3,), "index:1", "i64"), Y],
    ALL,
)
_add("index_fill", lambda x, i: x.index_fill(1, i, 1), [X, T((2,), "index:3", "i64")], ALL)
_add("scatter", lambda x, i, y: x.scatter(1, i, y), [X, T((2, 1, 4), "index:3", "i64"), Y], ALL)
_add("scatter of a number", lambda x, i: x.scatter(1, i, 1), [X, T((2, 1, 4), "index:3", "i64")], ALL)
_add("scatter_add", lambda x, i, y: x.scatter_add(1, i, y), [X, T((2, 3, 4), "index:3", "i64"), Y], NUMBER, 8.0)
_add(
    "scatter_reduce", lambda x, i, y: x.scatter_reduce(1, i, y, "amax"), [X, T((2, 3, 4), "index:3", "i64"), Y], NUMBER
)
_add(
    "masked_scatter",
    lambda m, x, y: x.masked_scatter(m, y),
    [MASK, X, Y],
    " ".join(f"bool,{name}" for name in ALL.split()),
)
_add(
    "masked_fill by a tensor",
    lambda m, x: x.masked_fill(m, torch.tensor(1, dtype=x.dtype)),
    [MASK, X],
    " ".join(f"bool,{name}" for name in ALL.split()),
)
_add("embedding", F.embedding, [T((5,), "index:4", "i64"), MATRIX], " ".join(f"i64,{name}" for name in ALL.split()))
_add("embedding, int32", F.embedding, [T((2, 3), "index:4", "i32"), MATRIX], "i32,f32 i32,f16")
_add(
    "embedding, int32 weight known",
    lambda i: F.embedding(i, torch.arange(20.0).view(4, 5)),
    [T((2, 3), "index:4", "i32")],
    "i32",
)
_add(
    "embedding_bag",
    lambda i, w: F.embedding_bag(i, w, mode="mean"),
    [T((2, 3), "index:4", "i64"), MATRIX],
    "i64,f32 i64,f16",
    4.0,
)
_add("one hot", lambda i: F.one_hot(i, 4), [T((5,), "index:4", "i64")], "i64")
_add("bucketize", lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), [X], "f32")
_add("isin", lambda x: torch.isin(x, torch.tensor([1, 2])), [X], "i64 i32")

# -- tensors from nothing --------------------------------------------------------------------------------------------

for _name, _target in DTYPES.items():
    _add(
        f"new {_name}",
        lambda x, d=_target: (
            torch.full((2, 3), 1, dtype=d),
            torch.zeros(4, dtype=d),
            torch.ones_like(x, dtype=d),
            torch.eye(3, dtype=d),
            x.new_full((2,), 1, dtype=d),
            torch.empty(2, 0, dtype=d),
        ),
        [X],
        "f32 i64",
    )
    if _name != "bool":
        _add(
            f"arange {_name}",
            lambda x, d=_target: (torch.arange(5, dtype=d), torch.arange(1, 9, 2, dtype=d), x),
            [X],
            "f32",
        )
_add("linspace", lambda x: (torch.linspace(0, 1, 5), torch.linspace(0, 1, 5, dtype=torch.float64), x), [X], "f32")
_add("full_like", lambda x: (torch.full_like(x, 1), torch.zeros_like(x), x.new_ones(3)), [X], ALL)
_add("triangles of indices", lambda x: (torch.tril_indices(3, 3), torch.triu_indices(3, 4), x), [X], "f32")

# -- linear algebra, convolution, pooling, resizing, normalization ---------------------------------------------------

_add("mm", torch.mm, [T((3, 4)), MATRIX], NUMBER, 8.0)
_add("bmm", lambda x, y: x @ y.mT, [X, Y], NUMBER, 8.0)
_add("matmul", lambda x, y: (x @ y[0, 0], x[0, 0] @ y.mT, x[0, 0] @ y[0, 0], x @ y[0].T), [X, Y], NUMBER, 8.0)
_add("addmm", torch.addmm, [T((5,)), T((3, 4)), MATRIX], NUMBER, 8.0)
_add("addmm, scaled", lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2), [T((5,)), T((3, 4)), MATRIX], FLOAT, 8.0)
_add("baddbmm", lambda b, x, y: torch.baddbmm(b, x, y.mT, beta=2), [T((2, 3, 3)), X, Y], NUMBER, 8.0)
_add("linear", F.linear, [X, T((5, 4)), T((5,))], FLOAT, 8.0)
_add("linear without bias", F.linear, [X, T((5, 4))], FLOAT, 8.0)
_add("linear of a vector", F.linear, [T((4,)), T((5, 4)), T((5,))], FLOAT, 8.0)
_add(
    "long sums",
    lambda x, y: (x @ y, x.sum(1), x.mean(1)),
    [T((2, 3000), "positive"), T((3000, 2), "positive")],
    FLOAT,
    64.0,
)
_LONG = T((2, 4000), "positive")
_add(
    "long reductions",
    lambda x: (
        x.cumsum(1)[:, -1],
        x.var(1),
        x.softmax(1),
        x.log_softmax(1),
        F.layer_norm(x, (4000,)),
        torch.linalg.vector_norm(x, dim=1),
        x.view(2, 40, 100).sum((1, 2)),
    ),
    [_LONG],
    FLOAT,
    64.0,
)
_add(
    "long products",
    lambda x, w: (F.linear(x, w), torch.bmm(x[None], w[None].mT), torch.addmm(w[0, :2], x, w.T)),
    [_LONG, T((2, 4000), "positive", seed=1)],
    FLOAT,
    64.0,
)
_add(
    "long convolution",
    F.conv2d,
    [T((1, 100, 6, 6), "positive"), T((1, 100, 6, 6), "positive")],
    FLOAT,
    16.0,
)
_add(
    "wide windows",
    lambda x: (F.avg_pool2d(x, 60), F.adaptive_avg_pool2d(x, 1), x.mean((2, 3))),
    [T((1, 1, 60, 60), "positive")],
    FLOAT,
    64.0,
)
_add(
    "long products, more",
    lambda x, y: (
        torch.baddbmm(y[None, :2, :2], x[None], y.T[None]),
        torch.einsum("ij,kj->ik", x, y),
        (x @ y[0]),
        (x * y).sum(1),
    ),
    [_LONG, T((2, 4000), "positive", seed=1)],
    FLOAT,
    64.0,
)
_add(
    "long norms",
    lambda x: (F.group_norm(x, 2), F.rms_norm(x, (60,)), F.instance_norm(x), F.layer_norm(x, (60, 60))),
    [T((1, 4, 60, 60), "positive")],
    FLOAT,
    64.0,
)
_add(
    "long integers",
    lambda x: (
        x.sum(),
        x.sum(1),
        x.cumsum(1),
        x.view(1, -1) @ x.view(-1, 1),
        torch.addmm(x[:2, :2], x, x.T),
        x.prod(1),
    ),
    [T((2, 300), "close")],
    "i32 i64 i16",
)
_add("einsum", lambda x, m: torch.einsum("bij,jk->bik", x, m), [X, MATRIX], FLOAT, 8.0)
_add("outer", lambda x, y: (torch.outer(x, y), torch.dot(x, x)), [T((3,)), T((4,))], NUMBER, 8.0)
_add("cdist", torch.cdist, [X, Y], "f32 f64", 16.0)
_add("pdist", F.pdist, [T((4, 5))], "f32 f64", 16.0)
_add("cross", lambda x, y: torch.linalg.cross(x, y, dim=1), [X, Y], NUMBER, 4.0)
_add("cosine similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), [X, Y], FLOAT, 8.0)
_add("conv1d", lambda x, w: F.conv1d(x, w, dilation=2), [T((1, 4, 9)), T((2, 4, 3))], FLOAT, 16.0)
_add(
    "conv2d",
    lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2),
    [IMAGE, T((4, 2, 3, 3)), T((4,))],
    FLOAT,
    16.0,
)
_add("conv2d same", lambda x, w: F.conv2d(x, w, padding="same"), [IMAGE, T((4, 4, 3, 2))], FLOAT, 16.0)
_add("conv3d", F.conv3d, [T((1, 2, 3, 4, 4)), T((2, 2, 2, 2, 2))], "f32", 16.0)
_add("conv without batch", F.conv2d, [T((4, 6, 6)), T((2, 4, 3, 3))], FLOAT, 16.0)
_add("conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), [T((1, 4, 5)), T((4, 2, 3))], FLOAT, 16.0)
_add(
    "conv_transpose2d",
    lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, output_padding=1),
    [IMAGE, T((4, 2, 3, 3)), T((2,))],
    FLOAT,
    16.0,
)
_add(
    "max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), [IMAGE], "f16 bf16 f32 f64 i8 i16 i32 i64 u8"
)
_add("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), [T((1, 4, 9))], FLOAT)
_add("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), [T((1, 4, 9))], FLOAT, 8.0)
_add(
    "avg_pool2d",
    lambda x: F.avg_pool2d(x, (2, 3), (2, 1), (1, 1), ceil_mode=True, count_include_pad=False),
    [IMAGE],
    FLOAT,
    8.0,
)
_add(
    "avg_pool3d",
    lambda x: (F.avg_pool3d(x, 2), F.avg_pool3d(x, (2, 3, 2), 1, (1, 1, 0))),
    [T((1, 2, 4, 4, 4))],
    "f32 f64",
    8.0,
)
_add(
    "adaptive_avg_pool1d",
    lambda x: (F.adaptive_avg_pool1d(x, 3), F.adaptive_avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 1)),
    [T((1, 4, 9))],
    FLOAT,
    8.0,
)
_add(
    "adaptive_avg_pool2d",
    lambda x: (F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_avg_pool2d(x, 1)),
    [IMAGE],
    FLOAT,
    8.0,
)
_add("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (2, 3)), [IMAGE], FLOAT)
_add("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), [T((1, 4, 9))], FLOAT)
_add("resize", lambda x: F.interpolate(x, (9, 5), mode="bilinear"), [IMAGE], FLOAT, 8.0)
_add(
    "resize, corners aligned",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    [IMAGE],
    FLOAT,
    8.0,
)
_add("resize, nearest", lambda x: F.interpolate(x, scale_factor=1.5), [IMAGE], f"{FLOAT} u8")
_add("resize, 1-d", lambda x: (F.interpolate(x, 7, mode="linear"), F.interpolate(x, 5)), [T((1, 4, 9))], FLOAT, 8.0)
_add("resize, bicubic", lambda x: F.interpolate(x, (7, 5), mode="bicubic"), [IMAGE], "f32 f64", 32.0)
_add("resize, smoothed", lambda x: F.interpolate(x, (4, 3), mode="bilinear", antialias=True), [IMAGE], "f32 f64", 16.0)
_add(
    "grid sample",
    lambda x, g: F.grid_sample(x, g, align_corners=False),
    [IMAGE, T((1, 3, 3, 2), "unit")],
    "f32 f64",
    16.0,
)
for _name in ("f16", "bf16"):
    _add(
        f"grid sample in {_name}",
        lambda x, g: F.grid_sample(x, g, align_corners=False),
        [IMAGE, T((1, 3, 3, 2), "unit")],
        _name,
        8.0,
    )
    OPERATORS[f"grid sample in {_name}"] = dataclasses.replace(OPERATORS[f"grid sample in {_name}"], wide=True)
_add("max_pool3d", lambda x: F.max_pool3d(x, 2, padding=1), [T((1, 2, 4, 4, 4))], FLOAT)
_add("layer_norm", lambda x, w, b: F.layer_norm(x, (4,), w, b), [X, T((4,)), T((4,), seed=1)], FLOAT, 8.0)
_add("layer_norm, plain", lambda x: F.layer_norm(x, (3, 4)), [X], FLOAT, 8.0)
_add("rms_norm", lambda x, w: F.rms_norm(x, (4,), w), [X, T((4,))], FLOAT, 8.0)
_add("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, eps=1e-3), [IMAGE, T((4,)), T((4,), seed=1)], FLOAT, 8.0)
_add("instance_norm", F.instance_norm, [IMAGE], FLOAT, 8.0)
_add("batch_norm", F.batch_norm, [IMAGE, T((4,)), T((4,), "positive")], FLOAT, 8.0)
_add("softmax", lambda x: (x.softmax(-1), x.softmax(0)), [X], FLOAT, 4.0)
_add("log_softmax", lambda x: (x.log_softmax(-1), x.log_softmax(1)), [X], FLOAT, 4.0)
_add("softmax in f32", lambda x: x.softmax(-1, dtype=torch.float32), [X], f"{FLOAT} i64", 4.0)
_add("softmin", lambda x: F.softmin(x, 1), [X], FLOAT, 4.0)
_ATTENTION = [T((1, 2, 3, 4)), T((1, 2, 5, 4)), T((1, 2, 5, 4), seed=1)]
_add("attention", F.scaled_dot_product_attention, _ATTENTION, FLOAT, 8.0)
_add(
    "attention, causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), _ATTENTION, FLOAT, 8.0
)
_add(
    "attention, masked",
    F.scaled_dot_product_attention,
    [*_ATTENTION, T((3, 5), dtype="bool")],
    FLOAT,
    8.0,
)
_add(
    "attention, biased",
    F.scaled_dot_product_attention,
    [*_ATTENTION, T((3, 5))],
    FLOAT,
    8.0,
)
_add("cross entropy", F.cross_entropy, [T((3, 4)), T((3,), "index:4", "i64")], FLOAT, 8.0)
_add(
    "losses",
    lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y)),
    [X, Y],
    FLOAT,
    8.0,
)
_add("binary cross entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), [X, Y], FLOAT, 8.0)


#: Cases that lowering refuses: operator -> dtypes of the case -> a part of the reason.
REFUSED: dict[str, dict[str, str]] = {
    name: dict.fromkeys(OPERATORS[name].cases if dtypes is None else dtypes.split(), reason)
    for name, (dtypes, reason) in {
        "erfc": (None, "aten.erfc.default, and the runtime has no kernel for it"),
        "lgamma": (None, "aten.lgamma.default, and the runtime has no kernel for it"),
        "signbit": (FLOAT, "aten.signbit.default, and the runtime has no kernel for it"),
        "copysign": (None, "aten.copysign.Tensor, and the runtime has no kernel for it"),
        "hypot": ("f64", "aten.hypot.default, and the runtime has no kernel for it"),
        "scatter_reduce": (None, "aten.scatter_reduce.two, and the runtime has no kernel for it"),
        "embedding_bag": (None, "aten._embedding_bag_forward_only.default, and the runtime has no kernel for it"),
        "resize, smoothed": ("f64", "the runtime's kernel computes float64 in float32"),
        "pow": ("i64 i32,i64 i64,i32 u8,i64", "computes int64 in float64, which has 53 bits"),
        "pow, no dimensions": ("bool,i64 i64,bool", "computes int64 in float64, which has 53 bits"),
        "pow, no dimensions first": ("bool,i64 i64,bool", "computes int64 in float64, which has 53 bits"),
        "sort, stable": (None, "aten.sort.stable, and the runtime has no kernel for it"),
    }.items()
}
