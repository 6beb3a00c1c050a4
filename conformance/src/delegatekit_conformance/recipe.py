"""A recipe: a small program with its inputs, written down as data.

Strategies draw recipes; trials turn them into modules and tensors; reports print them as Python. Because a recipe is
plain data it can be compared, sent to another process, shrunk and read by people. Equal recipes give equal numbers.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import nn

from delegatekit.quantization import torchao
from delegatekit_toolkit.accuracy import Accuracy
from delegatekit_toolkit.accuracy.script import BOUND, COMPARISON

#: Contents of a tensor's elements: ("normal",), ("uniform", low, high), ("integers", low, high) with `high` included,
#: ("distinct",) for numbers that differ from one another, ("special",) for NaN, infinities and zeros among ordinary
#: numbers, ("special", low, high) for the same among whole numbers, whose sums are exact, ("among", (1.0, ...)) for a
#: random choice of the numbers given, ("literal", (1.0, ...)) for the elements themselves in row-major order, and
#: ("bits", (0x3f800000, ...)) for those of float32 as integers: for NaN payloads, which Python cannot express.
Values: TypeAlias = tuple[Any, ...]

#: Memory layout of a tensor: "contiguous", "channels_last" (ranks 4 and 5), "transposed" (last two dimensions
#: exchanged), "strided" (every other element of the last dimension of a larger tensor) or "expanded" (dimension 0 has
#: stride 0: all its slices are one).
LAYOUTS = ("contiguous", "channels_last", "transposed", "strided", "expanded")

#: Namespaces of quantized programs' operators, and the modules that define them.
_QUANTIZED: Mapping[str, str] = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization.quant_primitives",
}
#: Namespaces of overloads.
_NAMESPACES = ("aten", *_QUANTIZED)


@dataclass(frozen=True)
class TensorRecipe:
    """A tensor: shape, dtype, how its elements are made and how it lies in memory.

    A `constant` becomes a buffer of the module instead of an input.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    values: Values = ("normal",)
    layout: str = "contiguous"
    constant: bool = False
    seed: int = 0

    def make(self, shape: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor, or one of another `shape` that is made in the same way. It is no view of another."""
        made = self._laid_out(self.shape if shape is None else tuple(shape), getattr(torch, self.dtype))
        # torch.export takes several times as long for an input that is a view: it makes the other tensor, too.
        alone = torch.empty(0, dtype=made.dtype)
        return alone.set_(made.untyped_storage(), made.storage_offset(), made.shape, made.stride())

    def _laid_out(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        if self.layout == "expanded" and shape:
            return self._fill((1, *shape[1:]), dtype).expand(shape)
        tensor = self._fill(shape, dtype)
        if self.layout == "channels_last" and len(shape) in (4, 5):
            form = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
            return tensor.contiguous(memory_format=form)
        if self.layout == "transposed" and len(shape) >= 2:
            return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
        if self.layout == "strided" and shape:
            return tensor.repeat_interleave(2, -1)[..., ::2]
        return tensor

    def _fill(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        kind, *numbers = self.values
        count = int(torch.Size(shape).numel())
        if kind == "normal":
            flat = torch.randn(count, generator=generator, dtype=torch.float64)
            return flat.to(dtype).reshape(shape)
        if kind == "uniform":
            low, high = numbers
            unit = torch.rand(count, generator=generator, dtype=torch.float64)
            return unit.mul(high - low).add(low).to(dtype).reshape(shape)
        if kind == "integers":
            low, high = numbers
            return torch.randint(low, high + 1, (count,), generator=generator).to(dtype).reshape(shape)
        if kind == "distinct":
            order = torch.randperm(count, generator=generator) - count // 2
            return (order / 4 if dtype.is_floating_point else order).to(dtype).reshape(shape)
        if kind == "special":
            flat = torch.randn(count, generator=generator, dtype=torch.float64)
            if numbers:
                flat = torch.randint(numbers[0], numbers[1] + 1, (count,), generator=generator).double()
            pool = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0], dtype=torch.float64)
            chosen = pool[torch.randint(len(pool), (count,), generator=generator)]
            made = torch.where(torch.rand(count, generator=generator) < 0.4, chosen, flat).to(dtype)
            # PyTorch's conversion gives a NaN a sign that depends on its place: NaN has none here.
            return (made.masked_fill_(made.isnan(), float("nan")) if dtype.is_floating_point else made).reshape(shape)
        if kind == "among":
            pool = torch.tensor(numbers[0], dtype=dtype)
            return pool[torch.randint(len(pool), (count,), generator=generator)].reshape(shape)
        if kind == "literal":
            return torch.tensor(numbers[0], dtype=dtype).reshape(shape)
        if kind == "bits":
            return _of_bits(numbers[0]).reshape(shape)
        raise ValueError(f"unknown kind of values {kind!r}")


def _of_bits(bits: Sequence[int]) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.uint32).view(torch.float32)


@dataclass(frozen=True)
class Ref:
    """A tensor of the recipe or a step's result, by name; `index` picks one of several results."""

    name: str
    index: int | None = None


@dataclass(frozen=True)
class Step:
    """One call. `target` is an overload ("aten.add.Tensor") or a function below torch ("torch.relu").

    Overloads are ATen's, or those of `quantized_decomposed` and `torchao`: a program that is quantized already.

    Arguments are `Ref`, numbers, None, strings, torch dtypes and memory formats, and tuples of these (given as lists).
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    def references(self) -> Iterator[Ref]:
        """All tensors and results that the call reads."""
        yield from _references(self.args)
        yield from _references(tuple(value for _, value in self.kwargs))


@dataclass(frozen=True)
class Size:
    """A size that changes from call to call, within bounds: dimension `dim` of each of `tensors`."""

    symbol: str
    low: int
    high: int
    places: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Recipe:
    """Tensors by name, steps in order, and which results are returned.

    `reduction_length` is the number of products in the longest sum, `depth` that of rounding operators that follow
    one another; with `exact`, results are copies or integers, for which no rounding is excused. With
    `ill_conditioned` the oracle excuses what a rounding of the inputs would change, too.
    """

    tensors: tuple[tuple[str, TensorRecipe], ...]
    steps: tuple[Step, ...]
    outputs: tuple[Ref, ...]
    reduction_length: int = 1
    depth: int = 1
    exact: bool = False
    ill_conditioned: bool = False
    sizes: tuple[Size, ...] = ()
    #: Sizes of further calls, in the order of `sizes`.
    calls: tuple[tuple[int, ...], ...] = ()
    note: str = field(default="", compare=False)

    @property
    def has_elements(self) -> bool:
        """True if there are inputs, and no tensor is empty."""
        tensors = [tensor for _, tensor in self.tensors]
        return not all(tensor.constant for tensor in tensors) and all(0 not in tensor.shape for tensor in tensors)

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy that its results can have."""
        return Accuracy(self.reduction_length, self.depth, self.exact, self.ill_conditioned)

    def module(self) -> RecipeModule:
        """The program as a module in eval mode."""
        return RecipeModule(self)

    def inputs(self, sizes: Sequence[int] | None = None) -> tuple[torch.Tensor, ...]:
        """The inputs; `sizes` are those of one of `calls`."""
        return tuple(recipe.make(self._shape(name, sizes)) for name, recipe in self.tensors if not recipe.constant)

    def _shape(self, name: str, sizes: Sequence[int] | None) -> tuple[int, ...]:
        shape = list(dict(self.tensors)[name].shape)
        for size, value in zip(self.sizes, sizes or (), strict=False):
            for tensor, dim in size.places:
                if tensor == name:
                    shape[dim] = value
        return tuple(shape)

    def dynamic_shapes(self) -> tuple[Any, ...] | None:
        """The argument `dynamic_shapes` of `torch.export.export`, for the one argument `inputs` of the module."""
        if not self.sizes:
            return None
        shapes: dict[str, dict[int, Any]] = {name: {} for name, recipe in self.tensors if not recipe.constant}
        for size in self.sizes:
            dim = torch.export.Dim(size.symbol, min=size.low, max=size.high)
            for tensor, place in size.places:
                shapes[tensor][place] = dim
        return (tuple(shapes.values()),)

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """The exported program, made once for all trials: it is half of their cost. Raises whatever `export` raises."""
        return self.export()

    def __getstate__(self) -> dict[str, Any]:
        """All but the program, which another process makes anew."""
        return {key: value for key, value in self.__dict__.items() if key != "program"}

    def export(self) -> torch.export.ExportedProgram:
        """A program of its own. Raises whatever torch.export raises."""
        with torch.no_grad():
            return torch.export.export(self.module(), self.inputs(), dynamic_shapes=self.dynamic_shapes(), strict=False)

    def describe(self) -> str:
        """One line: the calls with the shapes of their operands."""
        tensors = dict(self.tensors)

        def show(value: Any) -> str:
            if isinstance(value, Ref) and value.name in tensors:
                recipe = tensors[value.name]
                extra = "" if recipe.layout == "contiguous" else f" {recipe.layout}"
                kind = "" if recipe.values[0] == "normal" else f" {recipe.values[0]}"
                return f"{recipe.dtype}[{', '.join(map(str, recipe.shape))}]{extra}{kind}"
            return _code(value, show)

        return "; ".join(_call(step, show, short=True) for step in self.steps)

    def snippet(self, backend: str) -> str:
        """A Python script that shows the same with nothing but torch and DelegateKit."""
        return _snippet(self, backend)

    def reseeded(self, number: int = 1) -> Recipe:
        """The recipe with other constants; with others again for another `number`."""
        tensors = (
            (key, replace(tensor, seed=tensor.seed + 100 * number) if tensor.constant else tensor)
            for key, tensor in self.tensors
        )
        return replace(self, tensors=tuple(tensors))


class RecipeModule(nn.Module):
    """Runs a recipe's steps. Its constants are buffers."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        for name, tensor in recipe.tensors:
            if tensor.constant:
                self.register_buffer(name, tensor.make())
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The outputs as a tuple, or the one output itself."""
        values: dict[str, Any] = dict(self.named_buffers())
        names = (name for name, tensor in self.recipe.tensors if not tensor.constant)
        values.update(zip(names, inputs, strict=True))
        for step in self.recipe.steps:
            args = _resolve(step.args, values)
            kwargs = {key: _resolve(value, values) for key, value in step.kwargs}
            values[step.name] = find_target(step.target)(*args, **kwargs)
        outputs = tuple(_resolve(ref, values) for ref in self.recipe.outputs)
        return outputs[0] if len(outputs) == 1 else outputs


@functools.cache
def define(namespace: str) -> None:
    """Define the operators of quantized programs of a namespace, "quantized_decomposed" or "torchao", in torch."""
    module = _QUANTIZED[namespace]
    if namespace == "torchao":
        torchao.load(module.removeprefix("torchao."))  # quietly
    else:
        importlib.import_module(module)


def find_target(target: str) -> Any:
    """The function of a step. Raises AttributeError if torch has none of this name."""
    root, _, path = target.partition(".")
    if root not in (*_NAMESPACES, "torch"):
        raise AttributeError(f"a target begins with {', '.join(_NAMESPACES)} or torch: {target}")
    if root in _QUANTIZED:
        define(root)
    start = torch if root == "torch" else getattr(torch.ops, root)
    return functools.reduce(getattr, path.split("."), start)


def _resolve(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        result = values[value.name]
        return result if value.index is None else result[value.index]
    if isinstance(value, tuple):
        return [_resolve(item, values) for item in value]
    return value


def _references(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _references(item)


# Python text


def _code(value: Any, show: Callable[[Any], str]) -> str:
    if isinstance(value, Ref):
        return value.name if value.index is None else f"{value.name}[{value.index}]"
    if isinstance(value, tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _plain(value: Any) -> str:
    return _code(value, _plain)


def _call(step: Step, show: Callable[[Any], str], *, short: bool = False) -> str:
    arguments = [*(show(arg) for arg in step.args), *(f"{key}={show(value)}" for key, value in step.kwargs)]
    name = step.target if short else _path(step.target)
    return f"{name}({', '.join(arguments)})"


def _path(target: str) -> str:
    return f"torch.ops.{target}" if target.partition(".")[0] in _NAMESPACES else target


def _snippet(recipe: Recipe, backend: str) -> str:
    inputs = [name for name, tensor in recipe.tensors if not tensor.constant]
    constants = [(name, tensor) for name, tensor in recipe.tensors if tensor.constant]
    roots = {step.target.partition(".")[0] for step in recipe.steps}
    more = [f"import {module}" for root, module in _QUANTIZED.items() if root in roots]
    lines = ["import copy", "import torch", *more, "import delegatekit", "", "", "class Example(torch.nn.Module):"]
    if constants:
        lines.append("    def __init__(self):")
        lines.append("        super().__init__()")
        lines += [f'        self.register_buffer("{name}", {tensor_code(tensor)})' for name, tensor in constants]
        lines.append("")
    lines.append(f"    def forward(self, {', '.join(inputs)}):" if inputs else "    def forward(self):")
    constant_names = {name for name, _ in constants}

    def show(value: Any) -> str:
        if isinstance(value, Ref) and value.name in constant_names:
            return f"self.{value.name}"
        return _code(value, show)

    lines += [f"        {step.name} = {_call(step, show)}" for step in recipe.steps]
    lines.append(f"        return {', '.join(show(ref) for ref in recipe.outputs)}")
    lines += ["", ""]
    lines += [f"{name} = {tensor_code(dict(recipe.tensors)[name])}" for name in inputs]
    arguments = "(" + "".join(f"{name}, " for name in inputs).rstrip() + ")"
    lines.append(f"inputs = {arguments}")
    dynamic = ""
    if recipe.sizes:
        lines += _dynamic_code(recipe, inputs)
        dynamic = ", dynamic_shapes=dynamic_shapes"
    lines.append("module = Example().eval()")
    lines.append(f'program = delegatekit.lower(module, inputs, backends=["{backend}"]{dynamic})')
    lines.append("print(delegatekit.report(program))")
    lines.append('method = delegatekit.load(program.buffer)["forward"]')
    lines += ["", *COMPARISON.splitlines(), "", "", "exact = copy.deepcopy(module).double()", BOUND, *_COMPARE]
    for sizes in recipe.calls:
        made = [tensor_code(tensor, recipe._shape(name, sizes)) for name, tensor in recipe.tensors if name in inputs]
        lines += [f"inputs = ({', '.join(made)},)", *_COMPARE]
    return "\n".join(lines) + "\n"


_COMPARE = (
    "wide = [x.double() if x.is_floating_point() else x for x in inputs]",
    "compare(method(*inputs), exact(*wide), bound)",
)


def _dynamic_code(recipe: Recipe, inputs: Iterable[str]) -> list[str]:
    lines = [
        f'{size.symbol} = torch.export.Dim("{size.symbol}", min={size.low}, max={size.high})' for size in recipe.sizes
    ]
    shapes = []
    for name in inputs:
        places = [f"{dim}: {size.symbol}" for size in recipe.sizes for tensor, dim in size.places if tensor == name]
        shapes.append("{" + ", ".join(places) + "}")
    lines.append(f"dynamic_shapes = ({', '.join(shapes)},)")
    return lines


#: Up to this many elements are written out; more are made from the seed.
_WRITTEN_OUT = 48


def tensor_code(recipe: TensorRecipe, shape: Sequence[int] | None = None) -> str:
    """A Python expression of the tensor, with its elements if they are few."""
    shape = recipe.shape if shape is None else tuple(shape)
    whole = (1, *shape[1:]) if recipe.layout == "expanded" and shape else tuple(shape)
    return _elements_code(recipe, whole) + _layout_code(recipe.layout, tuple(shape))


def _elements_code(recipe: TensorRecipe, shape: tuple[int, ...]) -> str:
    count = int(torch.Size(shape).numel())
    dtype = f"torch.{recipe.dtype}"
    if count == 0:
        return f"torch.empty({list(shape)}, dtype={dtype})"
    kind, *numbers = recipe.values
    if kind == "bits":
        return f"torch.tensor({list(numbers[0])}, dtype=torch.uint32).view({dtype}).reshape({list(shape)})"
    if count <= _WRITTEN_OUT or kind in ("special", "among", "literal"):
        plain = replace(recipe, shape=shape, layout="contiguous")
        return f"torch.tensor({_numbers(plain.make().tolist())}, dtype={dtype})"
    generator = f"generator=torch.Generator().manual_seed({recipe.seed})"
    code = {
        "normal": lambda: f"torch.randn({count}, {generator}, dtype=torch.float64)",
        "uniform": lambda: (
            f"(torch.rand({count}, {generator}, dtype=torch.float64) * {numbers[1] - numbers[0]} + {numbers[0]})"
        ),
        "integers": lambda: f"torch.randint({numbers[0]}, {numbers[1] + 1}, ({count},), {generator})",
        "distinct": lambda: (
            f"(torch.randperm({count}, {generator}) - {count // 2})"
            + (" / 4" if getattr(torch, recipe.dtype).is_floating_point else "")
        ),
    }[kind]()
    return f"({code}).to({dtype}).reshape({list(shape)})"


def _layout_code(layout: str, shape: tuple[int, ...]) -> str:
    rank = len(shape)
    if layout == "channels_last" and rank in (4, 5):
        return f".contiguous(memory_format=torch.channels_last{'_3d' if rank == 5 else ''})"
    if layout == "transposed" and rank >= 2:
        return ".transpose(-1, -2).contiguous().transpose(-1, -2)"
    if layout == "strided" and rank:
        return ".repeat_interleave(2, -1)[..., ::2]"
    if layout == "expanded" and rank:
        return f".expand({list(shape)})"
    return ""


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_numbers(item) for item in value)}]"
    return _plain(value)
