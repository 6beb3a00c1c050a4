"""Real delegates to damage, of every blob format of our plugins: each alone in a `.pte`, with inputs that fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

import delegatekit as dk
from delegatekit.engine.delegate import delegate_program
from delegatekit.pte import dtypes, read, schema, to_bytes
from delegatekit_api import NamedData
from delegatekit_qnn.blob.installation import Missing, find_installation


@dataclass(frozen=True)
class Delegate:
    """One delegate of a lowered program: its parts of the file."""

    name: str
    table: schema.BackendDelegate
    blob: bytes
    #: Named data of the program: key -> bytes.
    named: Mapping[str, bytes]
    inputs: tuple[schema.Tensor, ...]
    outputs: tuple[schema.Tensor, ...]

    def program(self) -> bytes:
        """A file whose one method calls the delegate."""
        named = tuple(NamedData(key, data) for key, data in self.named.items())
        return to_bytes(
            delegate_program(self.table, memoryview(self.blob), named, self.inputs, self.outputs, "forward")
        )

    def tensors(self) -> list[torch.Tensor]:
        """Inputs of the largest sizes."""
        torch.manual_seed(0)
        return [random_tensor(table) for table in self.inputs]

    def with_spec(self, key: str, value: bytes) -> Delegate:
        """With another value of a compile spec."""
        specs = [schema.CompileSpec(s.key, value if s.key == key else s.value) for s in self.table.compile_specs or ()]
        table = schema.BackendDelegate(self.table.id, self.table.processed, specs)
        return replace(self, table=table)


def random_tensor(table: schema.Tensor) -> torch.Tensor:
    """A tensor for an input of a file."""
    dtype, sizes = dtypes.torch_dtype(table.scalar_type), list(table.sizes or ())
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    low, high = (0, 2) if dtype is torch.bool else (0, 6) if dtype is torch.int64 else (-100, 100)
    return torch.randint(max(low, 0) if dtype is torch.uint8 else low, high, sizes).to(dtype)


def of_program(name: str, data: bytes) -> list[Delegate]:
    """All delegates of a program's first method."""
    file = read(data)
    plan = file.program.execution_plan[0]
    values = [value.val for value in plan.values or ()]
    found = []
    known = set(plan.inputs or ())
    for call in (item.instr_args for chain in plan.chains or () for item in chain.instructions or ()):
        arguments = getattr(call, "args", None) or ()
        if isinstance(call, schema.DelegateCall):
            table = (plan.delegates or [])[call.delegate_index]
            named = {key: bytes(content) for key, content in file.named_data.items() if "delegatekit" not in key}
            # A value that nothing computed before is a result.
            sides = ([values[i] for i in arguments if (i in known) is before] for before in (True, False))
            inputs, outputs = map(tuple, sides)
            found.append(Delegate(name, table, bytes(file.delegate_blob(table)), named, inputs, outputs))
        known.update(arguments)
    return found


class Floats(nn.Module):
    """Convolutions, poolings, resize, concatenation, pad, slice, products."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, groups=8, stride=2)
        self.up, self.head = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.conv(x))
        y = self.up(torch.cat([nn.functional.max_pool2d(self.deep(y), 2, 1), nn.functional.avg_pool2d(y, 4)], 2))
        y = nn.functional.interpolate(nn.functional.pad(y, (1, 0, 2, 1)), size=(4, 4), mode="bilinear")
        y = nn.functional.elu(nn.functional.leaky_relu(y)[:, :, 1:, :3]).mean((2, 3))
        return torch.softmax(self.head(y), -1), (y.unsqueeze(2) @ y.unsqueeze(1)).transpose(1, 2).reshape(-1, 16)


class Rows(nn.Module):
    """Rows of changing number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.second(torch.relu(self.first(x)))
        return z + y, torch.cat([z, z * y], 1)[:, 1:].reshape(-1, 1)


class Small(nn.Module):
    """Operators that every backend takes when they are quantized."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.conv(x)), 2)
        return self.head((y + y.sigmoid()).mean((2, 3)))


class Tokens(nn.Module):
    """Rows of a table, attention, norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True, activation="gelu", dropout=0.0)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layer(self.words(ids))
        return y.flip(1).argmax(-1), torch.where(y > 0, y, y.sum(-1, keepdim=True)).repeat(1, 2, 1)


class Steps(nn.Module):
    """Recurrent layers, and elements that are written by index."""

    def __init__(self) -> None:
        super().__init__()
        self.long, self.plain = nn.LSTM(4, 5, batch_first=True), nn.RNN(5, 6, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.plain(self.long(x)[0])[0]
        values, places = y.topk(2, -1)
        return y.scatter(-1, places, 2 * values), y.cumsum(1)


class Many(nn.Module):
    """Operators of many kinds for a backend that calls PyTorch's."""

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.cumsum(x, 1).gather(1, index)
        values, places = torch.topk(y, 2)
        z = torch.where(y > 0, y, 0.0).index_select(1, index[0])
        w = nn.functional.grid_sample(x.reshape(1, 1, 4, 6), z.reshape(1, 2, 4, 3)[..., :2], align_corners=False)
        return (
            values,
            places,
            torch.sort(z, 1)[0],
            w,
            x.unfold(1, 3, 2),
            nn.functional.layer_norm(x, (6,)),
            x.repeat(2, 1),
        )


def _lowered(module: nn.Module, inputs: tuple[Any, ...], backend: str, scheme: str = "", **more: Any) -> bytes:
    if scheme:
        quantized = dk.quantize(module.eval(), [inputs], backend=backend, scheme=scheme)
        return dk.lower(quantized, inputs, backends=[backend], **more).buffer
    exported = torch.export.export(module.eval(), inputs, dynamic_shapes=more.pop("shapes", None))
    return dk.lower(exported, backends=[backend], **more).buffer


IMAGE = torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8)
BATCH = {0: torch.export.Dim("rows", min=1, max=8)}
ROWS = (torch.linspace(-1, 1, 12).reshape(3, 4), torch.ones(3, 3))
MANY = (torch.linspace(-1, 1, 24).reshape(4, 6), torch.arange(24).reshape(4, 6) % 6)
_MAKERS: Mapping[str, Callable[[], bytes]] = {
    "xnnpack-floats": lambda: _lowered(Floats(), (IMAGE,), "xnnpack"),
    "xnnpack-rows": lambda: _lowered(Rows(), ROWS, "xnnpack", shapes=(BATCH, BATCH)),
    "xnnpack-int8": lambda: _lowered(Small(), (IMAGE,), "xnnpack", "int8"),
    "xnnpack-int4": lambda: _lowered(nn.Linear(64, 6), (torch.ones(2, 64),), "xnnpack", "int8-dynamic-int4"),
    "xnnpack-dynamic": lambda: _lowered(nn.Linear(8, 6), (torch.ones(2, 8),), "xnnpack", "int8-dynamic"),
    "vulkan-floats": lambda: _lowered(Floats(), (IMAGE,), "vulkan"),
    "vulkan-rows": lambda: _lowered(Rows(), ROWS, "vulkan", shapes=(BATCH, BATCH)),
    "vulkan-half": lambda: _lowered(Small(), (IMAGE,), "vulkan", options={"vulkan": {"fp16": True}}),
    "vulkan-tokens": lambda: _lowered(Tokens(), (torch.arange(6).reshape(1, 6),), "vulkan"),
    "vela-u55": lambda: _lowered(Small(), (IMAGE,), "ethosu", "int8", options={"ethosu": {"target": "ethos-u55-128"}}),
    "vela-u65": lambda: _lowered(Small(), (IMAGE,), "ethosu", "int8", options={"ethosu": {"target": "ethos-u65-256"}}),
    "vela-u85": lambda: _lowered(Small(), (IMAGE,), "ethosu", "int8", options={"ethosu": {"target": "ethos-u85-256"}}),
    "tosa-u65": lambda: _lowered(
        Small(), (IMAGE,), "ethosu", "int8", options={"ethosu": {"target": "ethos-u65-256", "keep_tosa": True}}
    ),
    "tosa-u85": lambda: _lowered(
        Small(), (IMAGE,), "ethosu", "int8", options={"ethosu": {"target": "ethos-u85-256", "keep_tosa": True}}
    ),
    "coreml-floats": lambda: _lowered(Floats(), (IMAGE,), "coreml"),
    "coreml-int8": lambda: _lowered(Small(), (IMAGE,), "coreml", "int8", options={"coreml": {"target": "ios17"}}),
    "coreml-tables": lambda: _lowered(
        nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 6)),
        (torch.ones(2, 64),),
        "coreml",
        options={"coreml": {"target": "ios18", "palettize": 4, "palette_channels": 16}},
    ),
    "coreml-sparse": lambda: _lowered(
        nn.Linear(64, 64), (torch.ones(2, 64),), "coreml", options={"coreml": {"target": "ios16", "prune": 0.5}}
    ),
    "coreml-tokens": lambda: _lowered(Tokens(), (torch.arange(6).reshape(1, 6),), "coreml"),
    "coreml-sequence": lambda: _lowered(Steps(), (torch.ones(2, 3, 4),), "coreml"),
    "reference-many": lambda: _lowered(Many(), MANY, "reference"),
    "reference-rows": lambda: _lowered(Rows(), ROWS, "reference", shapes=(BATCH, BATCH)),
    "reference-floats": lambda: _lowered(Floats(), (IMAGE,), "reference"),
    "qnn-half": lambda: _lowered(Small(), (IMAGE,), "qnn"),
    "qnn-bytes": lambda: _lowered(Small(), (IMAGE,), "qnn", "8a8w"),
}
#: The formats whose blobs can be made here: QNN's need the vendor's library.
FORMATS = (
    *("xnnpack", "vulkan", "coreml", "vela", "tosa", "reference"),
    *(() if isinstance(find_installation(), Missing) else ("qnn",)),
)


def make(formats: Sequence[str] = FORMATS) -> list[Delegate]:
    """The delegates of these formats: the word before the dash."""
    torch.manual_seed(0)
    return [
        delegate
        for name, maker in _MAKERS.items()
        if name.split("-")[0] in formats
        for delegate in of_program(name, maker())
    ]
