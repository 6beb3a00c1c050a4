"""Numbers of a target's graph, which the compositions compute with, and the primitives that a target brings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar


class Value(Protocol):
    """A tensor of a target's graph."""

    @property
    def shape(self) -> Sequence[Any]:
        """Sizes: integers, or what the target has for a size that changes."""


V = TypeVar("V", bound=Value)

#: Writes an operation into a target's graph: takes the builder, then values and Python's numbers; returns a value.
Primitive: TypeAlias = "Callable[..., V]"


#: The primitives of every target.
REQUIRED: Final = frozenset(
    (
        *("add", "sub", "mul", "div", "minimum", "maximum", "neg", "abs", "sign", "floor", "round"),
        *("sqrt", "exp", "log", "sin", "cos", "lt", "le", "gt", "ge", "eq", "where", "and", "or", "not"),
    )
)


@dataclass(frozen=True)
class Dialect(Generic[V]):
    """The primitives of a target, by name, and the types of its values.

    A primitive takes the builder, and then values of the graph, which broadcast. Where two are taken, one of them may
    be a number of Python, which is one of the other's type. Every target brings those of the first part, `REQUIRED`:

    | primitives | arguments after the builder | what they give |
    |---|---|---|
    | `add`, `sub`, `mul` | x, y | of integers, too |
    | `div` | x, y | the quotient; of integers the next one below, unless the target brings `floor_divide` |
    | `minimum`, `maximum` | x, y | of integers, too; NaN where one is NaN |
    | `neg`, `abs`, `sign` | x | `abs` and `sign` of integers, too; the sign of NaN is 0 |
    | `floor`, `round` | x | integers of x's floating-point type; `round` takes the even one of two |
    | `sqrt`, `exp`, `log`, `sin`, `cos` | x | |
    | `lt`, `le`, `gt`, `ge`, `eq` | x, y | booleans; of integers and booleans, too |
    | `and`, `or`, `not` | booleans: x, y; x | booleans |
    | `where` | booleans, x, y | x where they are true, else y; of integers and booleans, too |

    What computes along axes (`along`) wants more. Axes count from the front, and there is one at least:

    | primitives | arguments after the builder | what they give |
    |---|---|---|
    | `reduce_sum`, `reduce_mean` | x, axes, keep | one number along the axes, which stay with size 1 if `keep` |
    | `reduce_max`, `reduce_min` | x, axes, keep | as these, of integers, too |
    | `slice` | x, axis, start, end | the elements from `start` up to before `end` |
    | `concat` | values, axis | a list of them, one after the other |
    | `insert`, `drop` | x, axis; x, axes | with an axis of size 1 before that one; without some of size 1 |
    | `places` | x, axis | where each element is along it: integers of x's sizes |
    | `integers` | booleans | 0 and 1 as integers |

    The bits of integers are joined by `bitwise_and`, `bitwise_or` and `bitwise_xor` (x, y), where a target's rows take
    other types than booleans.

    Of the compositions of this package, which take what their own signatures say, a target brings those for which it
    has an operation, or a better composition for its arithmetic: all others use that.
    """

    primitives: Mapping[str, Primitive[V]]
    #: Significant bits of a value's type: 24 for float32, 11 for float16; 0 for integers, -1 for booleans.
    digits: Callable[[V], int]
    #: False for a target to which infinity is a number like others.
    infinities: bool = True

    def number(self, builder: object, value: V) -> Number[V]:
        """A value of a graph under construction as a number."""
        return Number(self, builder, value)


@dataclass(frozen=True, eq=False)
class Number(Generic[V]):
    """A tensor of a target's graph as a number: Python's operators write operations, which broadcast.

    The other operand is a Number or a Python number. Comparisons give booleans, on which `&`, `|` and `~` are logical.
    """

    dialect: Dialect[V]
    builder: object
    value: V

    @property
    def digits(self) -> int:
        """Significant bits: 24 for float32, 11 for float16; 0 for integers, -1 for booleans."""
        return self.dialect.digits(self.value)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes."""
        return tuple(self.value.shape)

    @property
    def is_float(self) -> bool:
        """True for floating-point numbers."""
        return self.digits > 0

    @property
    def is_bool(self) -> bool:
        """True for booleans."""
        return self.digits < 0

    def __add__(self, other: Term[V]) -> Number[V]:
        return write("add", self, other)

    def __radd__(self, other: float) -> Number[V]:
        return write("add", other, self)

    def __sub__(self, other: Term[V]) -> Number[V]:
        return write("sub", self, other)

    def __rsub__(self, other: float) -> Number[V]:
        return write("sub", other, self)

    def __mul__(self, other: Term[V]) -> Number[V]:
        return write("mul", self, other)

    def __rmul__(self, other: float) -> Number[V]:
        return write("mul", other, self)

    def __truediv__(self, other: Term[V]) -> Number[V]:
        return write("div", self, other)

    def __rtruediv__(self, other: float) -> Number[V]:
        return write("div", other, self)

    def __neg__(self) -> Number[V]:
        return write("neg", self) if self.is_float else 0 - self

    def __abs__(self) -> Number[V]:
        return write("abs", self)

    def __lt__(self, other: Term[V]) -> Number[V]:
        return write("lt", self, other)

    def __le__(self, other: Term[V]) -> Number[V]:
        return write("le", self, other)

    def __gt__(self, other: Term[V]) -> Number[V]:
        return write("gt", self, other)

    def __ge__(self, other: Term[V]) -> Number[V]:
        return write("ge", self, other)

    def equals(self, other: Term[V]) -> Number[V]:
        """Element by element; `==` compares the objects."""
        return write("eq", self, other)

    def __and__(self, other: Number[V]) -> Number[V]:
        return write("and", self, other)

    def __or__(self, other: Number[V]) -> Number[V]:
        return write("or", self, other)

    def __invert__(self) -> Number[V]:
        return write("not", self)


#: An operand: a number of the graph, or a Python number.
Term: TypeAlias = "Number[V] | float"
TermT = TypeVar("TermT", bound="Number[Any] | float")


def write(name: str, *operands: Any) -> Number[Any]:
    """A primitive of the target, applied to numbers of its graph and Python numbers."""
    first = operands[0]
    like = next(item for item in (first if isinstance(first, list) else operands) if isinstance(item, Number))
    return Number(like.dialect, like.builder, like.dialect.primitives[name](like.builder, *map(_value, operands)))


def _value(item: Any) -> Any:
    if isinstance(item, list):
        return [part.value for part in item]
    return item.value if isinstance(item, Number) else item


MakeT = TypeVar("MakeT", bound=Callable[..., Any])


def composition(make: MakeT) -> MakeT:
    """A function of numbers, written by others; a target's primitive of the same name takes its place."""
    name: Final = make.__name__.rstrip("_")

    @wraps(make)
    def wrapped(*operands: Any) -> Any:
        like = next(item for item in operands if isinstance(item, Number))
        return write(name, *operands) if name in like.dialect.primitives else make(*operands)

    return wrapped  # type: ignore[return-value]


# -- primitives of every target ----------------------------------------------------------------------------------------


def exp(x: Number[V]) -> Number[V]:
    """e^x"""
    return write("exp", x)


def log(x: Number[V]) -> Number[V]:
    """The natural logarithm."""
    return write("log", x)


def sqrt(x: Number[V]) -> Number[V]:
    """The square root."""
    return write("sqrt", x)


def sin(x: Number[V]) -> Number[V]:
    """The sine."""
    return write("sin", x)


def cos(x: Number[V]) -> Number[V]:
    """The cosine."""
    return write("cos", x)


def floor(x: Number[V]) -> Number[V]:
    """The largest integer that is not larger."""
    return write("floor", x) if x.is_float else x


def sign(x: Number[V]) -> Number[V]:
    """-1, 0 or 1; 0 for NaN, as in PyTorch."""
    return write("sign", x)


def round_(x: Number[V]) -> Number[V]:
    """The nearest integer, of two the even one."""
    return write("round", x) if x.is_float else x


def minimum(x: Number[V], other: Term[V]) -> Number[V]:
    """The smaller of two."""
    return x & other if x.is_bool and isinstance(other, Number) else write("minimum", x, other)


def maximum(x: Number[V], other: Term[V]) -> Number[V]:
    """The larger of two."""
    return x | other if x.is_bool and isinstance(other, Number) else write("maximum", x, other)


def where(condition: Number[V], left: Term[V], right: Term[V]) -> Number[V]:
    """The left one where the condition holds, else the right one; one of them at least is of the graph."""
    return write("where", condition, left, right)


# -- what may be primitive, and is composed in one line ----------------------------------------------------------------


@composition
def truth(x: Number[V]) -> Number[V]:
    """Booleans: true where the number is not 0."""
    return x if x.is_bool else ne(x, 0)


@composition
def ne(x: Number[V], other: Term[V]) -> Number[V]:
    """True where two are not equal, NaN among them."""
    return ~x.equals(other)


@composition
def clamp(x: Number[V], low: float | None, high: float | None) -> Number[V]:
    """The number between two numbers, as `between`."""
    return between(x, low, high)


def between(x: Number[V], low: Term[V] | None, high: Term[V] | None) -> Number[V]:
    """The number between two bounds; where the lower is the larger one, everything is the upper, as in PyTorch."""
    if low is not None:
        x = maximum(x, low)
    return x if high is None else minimum(x, high)


@composition
def reciprocal(x: Number[V]) -> Number[V]:
    """1 / x"""
    return 1 / x


@composition
def rsqrt(x: Number[V]) -> Number[V]:
    """1 / sqrt(x)"""
    return 1 / sqrt(x)


def ceil(x: Number[V]) -> Number[V]:
    """The smallest integer that is not smaller."""
    if not x.is_float:
        return x
    return write("ceil", x) if "ceil" in x.dialect.primitives else -floor(-x)


def trunc(x: Number[V]) -> Number[V]:
    """The number without its fraction."""
    if not x.is_float:
        return x
    return write("trunc", x) if "trunc" in x.dialect.primitives else where(x < 0, ceil(x), floor(x))


@composition
def signbit(x: Number[V]) -> Number[V]:
    """True below zero, and for the zero whose inverse is; false for NaN, whatever its sign."""
    return (where(x.equals(0), 1 / x, x) if x.is_float else x) < 0


@composition
def isnan(x: Number[V]) -> Number[V]:
    """True for NaN, which does not equal itself."""
    return ~x.equals(x)


@composition
def isinf(x: Number[V]) -> Number[V]:
    """True for both infinities."""
    return abs(x).equals(math.inf)


def times(x: TermT, factor: float) -> TermT:
    """A product with a known factor; with 1, the number itself."""
    return x if factor == 1 else x * factor  # type: ignore[return-value]


def polynomial(x: Number[V], coefficients: Sequence[float]) -> Number[V]:
    """A polynomial by Horner's rule, its coefficients from the constant one up; two of them at least."""
    *lower, highest = coefficients
    found = x * highest
    for coefficient in lower[:0:-1]:
        found = (found + coefficient) * x
    return found + lower[0]
