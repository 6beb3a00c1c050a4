"""A Python program that shows some operators of a lowered program by themselves, with torch and DelegateKit alone."""

from __future__ import annotations

import base64
import math
import operator
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node, map_arg

from delegatekit.edge import EdgeMethod, is_size_node
from delegatekit_api.nodes import operator_name
from delegatekit_toolkit.accuracy.script import BOUND, COMPARISON, with_bound

from .cut import CutProgram
from .referee import Values
from .result import Measured

#: Tensors of more elements are written as packed bytes, of more bytes (in total) into a file beside the program.
_WRITTEN_OUT: Final = 24
_PACKED: Final = 60_000
#: Modules that register operators which torch does not register by itself.
_IMPORTS: Final[Mapping[str, str]] = {
    "quantized_decomposed": "import torch.ao.quantization.fx._decomposed",
    "torchao": "import torchao.quantization.quant_primitives",
}
#: The name of the file beside the program.
TENSORS: Final = "tensors.pt"


@dataclass(frozen=True)
class Snippet:
    """The program, or the reason why there is none, and the contents of its data file."""

    text: str
    reason: str
    tensors: Mapping[str, torch.Tensor]


def why_none(edge: EdgeMethod, nodes: Sequence[Node]) -> str:
    """The reason why there can be no program of these nodes by themselves; empty if there can."""
    if any(node in edge.regions for node in nodes):
        return "control flow is not shown by itself"
    if any(is_size_node(item) for node in nodes for item in node.all_input_nodes):
        return "it needs sizes that change from call to call, which it would not have by itself"
    return ""


def module_of(program: CutProgram) -> torch.nn.Module:
    """The cut program as a module, which its snippet prints."""
    graph = torch.fx.Graph()
    copies: dict[Node, Any] = {}
    root = torch.nn.Module()
    for node in program.method.graph.nodes:
        if node in program.method.constants:
            root.register_buffer(node.name, program.method.constants[node].detach())
            copies[node] = graph.get_attr(node.name)
        elif node.op == "output":
            graph.output(map_arg(node.args[0], copies.__getitem__))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(root, graph).eval()


def stand_ins(values: Values, nodes: Sequence[Node]) -> dict[Node, torch.Tensor]:
    """Random tensors like the values of these nodes, made by a line of code: same dtype, mean and spread."""
    return {node: _drawn(values[node], *_spread(values[node]), seed) for seed, node in enumerate(nodes)}


def write(
    program: CutProgram,
    values: Values,
    drawn: Sequence[Node],
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    measured: Measured,
) -> Snippet:
    """The program that was verified to show `measured`.

    `values` are those of the graph that was cut; the inputs in `drawn` are shown as stand-ins.
    """
    method = program.method
    constants = list(method.constants)
    given = dict(zip(method.inputs, program.inputs, strict=True))
    codes = _Codes()
    made = [codes.drawn(given[node].name, values[given[node]], drawn.index(given[node])) if given[node] in drawn
            else codes.tensor(given[node].name, values[given[node]]) for node in method.inputs]  # fmt: skip
    kept = [codes.tensor(node.name, method.constants[node]) for node in constants]
    calls = [node for node in method.graph.nodes if node.op == "call_function"]
    spaces = {operator_name(node).partition(".")[0] for node in calls}
    packed = any("unpacked(" in code for code in (*made, *kept))
    what = ", ".join(dict.fromkeys(map(operator_name, calls)))
    lines = [f'"""Written by `delegatekit compare`: {what} on {", ".join(backends)}."""', ""]
    lines += ["import base64", "import copy", "import zlib"] if packed else ["import copy"]
    lines += ["", "import torch"]
    lines += [_IMPORTS[name] for name in sorted(spaces & _IMPORTS.keys())]
    lines += ["", "import delegatekit", "", *(_PACKING if packed else ()), ""]
    lines += [f'tensors = torch.load("{TENSORS}")'] if codes.files else []
    lines += ["", "class Example(torch.nn.Module):"]
    if constants:
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f'        self.register_buffer("{n.name}", {code})' for n, code in zip(constants, kept, strict=True)]
        lines.append("")
    names = {node: f"self.{node.name}" if node in method.constants else node.name for node in method.graph.nodes}
    lines.append(f"    def forward(self, {', '.join(node.name for node in method.inputs)}):")
    lines += [f"        {node.name} = {_call(node, names.__getitem__)}" for node in calls]
    lines += [f"        return {', '.join(names[item] for item in method.outputs)}", "", ""]
    lines += [f"{node.name} = {code}" for node, code in zip(method.inputs, made, strict=True)]
    lines.append(f"inputs = ({''.join(f'{node.name}, ' for node in method.inputs).rstrip()})")
    lines.append("module = Example().eval()")
    chosen = {name: dict(found) for name, found in options.items() if found}
    more = f", options={chosen!r}" if chosen else ""
    lines.append(f"program = delegatekit.lower(module, inputs, backends={list(backends)!r}{more})")
    lines += [
        "print(delegatekit.report(program))",
        'results = delegatekit.load(program.buffer)["forward"](*inputs)',
        "",
    ]
    lines += [*COMPARISON.strip().splitlines(), "", "", *_reference(spaces), BOUND, "compare(results, exact, bound)"]
    return Snippet(with_bound("\n".join(lines) + "\n", measured.bound), "", codes.files)


_PACKING: Final = (
    "",
    "",
    "def unpacked(dtype, shape, text):",
    '    """A tensor of its packed bytes."""',
    "    data = bytearray(zlib.decompress(base64.b85decode(text)))",
    "    return torch.frombuffer(data, dtype=dtype).reshape(shape)",
)


def _reference(spaces: set[str]) -> list[str]:
    if spaces & _IMPORTS.keys():  # which exist for float32 alone
        return ["exact = module(*inputs)"]
    wide = "[x.double() if x.is_floating_point() else x for x in inputs]"
    return [f"exact = copy.deepcopy(module).double()(*{wide})"]


class _Codes:
    """Python expressions of tensors; those too large to be written inline go to a file."""

    def __init__(self) -> None:
        self.files: dict[str, torch.Tensor] = {}
        self._packed = 0

    def drawn(self, name: str, value: torch.Tensor, seed: int) -> str:
        """Code that makes the stand-in of a value."""
        low, high = _spread(value)
        maker = f"generator=torch.Generator().manual_seed({seed})"
        shape, dtype = list(value.shape), str(value.dtype)
        if value.is_floating_point():
            return f"(torch.randn({shape}, {maker}) * {high!r} + {low!r}).to({dtype})"
        return f"torch.randint({int(low)}, {int(high) + 1}, {shape}, {maker}).to({dtype})"

    def tensor(self, name: str, value: torch.Tensor) -> str:
        """Code that makes exactly this tensor."""
        value = value.detach().contiguous()
        if value.numel() <= _WRITTEN_OUT:
            if not value.numel():
                return f"torch.empty({list(value.shape)}, dtype={value.dtype})"
            return f"torch.tensor({_plain(value.tolist())}, dtype={value.dtype}).reshape({list(value.shape)})"
        packed = base64.b85encode(zlib.compress(value.reshape(-1).view(torch.uint8).numpy().tobytes(), 9)).decode()
        if self._packed + len(packed) > _PACKED:
            self.files[name] = value.clone()
            return f'tensors["{name}"]'
        self._packed += len(packed)
        return f'unpacked({value.dtype}, {list(value.shape)}, "{packed}")'


def _spread(value: torch.Tensor) -> tuple[float, float]:
    """Mean and deviation of floats, rounded; the smallest and the largest of integers."""
    if not value.numel():
        return 0.0, 1.0
    if not value.is_floating_point():
        whole = value.long()  # unsigned ones have no extremes
        return float(whole.min()), float(whole.max())
    finite = value.double()[value.isfinite()]
    if finite.numel() < 2:
        return 0.0, 1.0
    return float(f"{float(finite.mean()):.3g}"), float(f"{float(finite.std()):.3g}") or 1.0


def _drawn(value: torch.Tensor, low: float, high: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if value.is_floating_point():
        return (torch.randn(list(value.shape), generator=generator) * high + low).to(value.dtype)
    return torch.randint(int(low), int(high) + 1, list(value.shape), generator=generator).to(value.dtype)


def _call(node: Node, name: Callable[[Node], str]) -> str:
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return f"{name(source)}[{node.args[1]!r}]"
    arguments = [_argument(item, name) for item in node.args]
    arguments += [f"{key}={_argument(item, name)}" for key, item in node.kwargs.items()]
    return f"torch.ops.{operator_name(node)}({', '.join(arguments)})"


def _argument(value: Any, name: Callable[[Node], str]) -> str:
    if isinstance(value, Node):
        return name(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_argument(item, name) for item in value)}]"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)
