"""Weights of layers that are packed while they are lowered, as the options say: tables of numbers, or without those
near zero. The device unpacks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from delegatekit_api import Call, OptionError
from delegatekit_toolkit.modules import is_inside, module_paths
from delegatekit_toolkit.tables import places

from ..ir.builder import NUMPY, Var
from ..ir.tools import clusters
from ..ir.types import DataType
from ..targets import IOS16, IOS18, TARGETS, Target
from .common import LEAST_DIVISOR
from .program import ProgramBuilder
from .tables import OLD_BITS, looked_up, packed_bits

if TYPE_CHECKING:
    from ..options import CoreMLOptions

#: Numbers that are counted at a time.
_AT_ONCE: Final = 1 << 20
_CONVOLUTION: Final = "aten.convolution.default"


def check_compression(options: CoreMLOptions) -> None:
    """Raise OptionError for forms that the target has not, or that exclude each other."""
    if options.palettize and options.prune:
        raise _refused("palettize and prune exclude each other", "leave one of them out")
    if options.unpacked_modules and not options.palettize and not options.prune:
        raise _refused("unpacked_modules says what palettize and prune leave as it is", "palettize=4 makes tables")
    if options.palette_channels and not options.palettize:
        raise _refused("palette_channels says how many channels share a table", "palettize=4 makes tables")
    needs: list[tuple[str, bool, Target]] = [
        ("palettize", options.palettize > 0, IOS16),
        ("prune", options.prune > 0, IOS16),
        (f"palettize={options.palettize}", options.palettize not in (0, *OLD_BITS), IOS18),
        ("palette_channels", options.palette_channels > 0, IOS18),
    ]
    for name, is_used, oldest in needs:
        if is_used and TARGETS[options.target] < oldest:
            raise _refused(f"{name} needs {oldest.name}: the target is {options.target}", f"target={oldest.name}")


def _refused(what: str, hint: str) -> OptionError:
    return OptionError(what, where="option of backend coreml", hint=hint)


def weight_of(b: ProgramBuilder, call: Call) -> Var:
    """The weight of a layer, packed if the options say so."""
    operand, options = call["weight"], b.options
    data = operand.constant
    if data is None or not _is_packed(call, data, options):
        return b.value(operand)
    if options.palettize and bool(data.isfinite().all()):
        # The other weights have a row for each channel of the result.
        rows = call.operator != _CONVOLUTION or not call["transposed"]
        form = ("palettize", b.datatype(data.dtype), rows)
        return b.packed(operand, form, lambda data: _palettized(b, data, rows))
    if options.prune:
        return b.packed(operand, ("prune", b.datatype(data.dtype)), lambda data: _pruned(b, data, options.prune))
    return b.value(operand)


def _is_packed(call: Call, data: torch.Tensor, options: CoreMLOptions) -> bool:
    """True if the options select the weight of a call."""
    is_small = data.numel() < options.unpacked_below
    is_named = any(is_inside(path, name) for path in module_paths(call) for name in options.unpacked_modules)
    return not is_small and not is_named and _kind(call) not in options.unpacked_layers


def _kind(call: Call) -> str:
    """The kind of layer of a call."""
    if call.operator != _CONVOLUTION:
        return "linear"
    weight, groups = call["weight"].shape, call["groups"]
    # Each channel of the input has filters of its own.
    is_depthwise = groups > 1 and groups == (weight[0] if call["transposed"] else weight[1] * groups)
    return "depthwise" if is_depthwise else "convolution"


# -- tables ------------------------------------------------------------------------------------------------------------


def _palettized(b: ProgramBuilder, data: torch.Tensor, rows_are_channels: bool) -> Var:
    """Indices of a few bits into a table, or into one for each group of output channels. From iOS 18 on a table has
    shares of each channel's largest number: batch norms make channels very different from each other."""
    bits, channels, shape = b.options.palettize, b.options.palette_channels, tuple(data.shape)
    groups = shape[0] // channels if channels and shape[0] % channels == 0 else 1
    largest = data.to(torch.float32).abs().amax(tuple(range(1, len(shape))), keepdim=True).clamp(min=LEAST_DIVISOR)
    shares = data.to(torch.float32) / largest if b.target >= IOS18 else data
    rows = shares.reshape(groups, -1).to(torch.float32)
    tables = torch.stack([palette(row, 1 << bits) for row in rows])
    own = tables.repeat_interleave(shape[0] // groups, 0)
    by_channel = shares.reshape(shape[0], -1)
    found = places(by_channel, own, balance=rows_are_channels)
    lut: np.ndarray[Any, Any] = tables.numpy().astype(NUMPY[b.datatype(data.dtype)])
    blocks = (groups, *[1] * (len(shape) - 1))
    made = looked_up(b, found.numpy().reshape(shape), lut.reshape(*blocks, 1 << bits))
    if b.target < IOS18:
        return made
    return b.call("constexpr_blockwise_shift_scale", data=made, scale=largest.numpy().astype(lut.dtype))


def palette(values: torch.Tensor, entries: int) -> torch.Tensor:
    """The numbers, ascending, to which those of a tensor have the least squared distances; the last one is repeated
    where fewer do. Found on the values in float16, of which there are few different ones."""
    half = torch.finfo(torch.float16).max
    counts = np.zeros(1 << 16, np.int64)
    for part in torch.split(values.reshape(-1), _AT_ONCE):
        # -0 becomes 0.
        codes = part.float().clamp(-half, half).half().add(0.0).view(torch.int16).numpy().view(np.uint16)
        counts += np.bincount(codes, minlength=len(counts))
    (seen,) = counts.nonzero()
    known = seen.astype(np.uint16).view(np.float16).astype(np.float64)
    made = known if len(known) <= entries else clusters(known, counts[seen], entries)
    table = torch.from_numpy(np.sort(made)).to(torch.float32)
    return torch.cat([table, table[-1:].expand(entries - len(table))])


# -- without numbers near zero -----------------------------------------------------------------------------------------


def _pruned(b: ProgramBuilder, data: torch.Tensor, share: float) -> Var:
    """A mask, and the numbers where it holds: the smallest of the others are left out."""
    flat = data.reshape(-1)
    kept = torch.ones(flat.numel(), dtype=torch.bool)
    kept[flat.abs().argsort(stable=True)[: int(share * flat.numel())]] = False
    kept &= flat != 0
    datatype = b.datatype(data.dtype)
    numbers = flat[kept].to(datatype.torch).numpy()
    if b.target < IOS18:
        return b.call(
            "constexpr_sparse_to_dense",
            nonzero_data=numbers,
            mask=packed_bits(kept.numpy(), 1),
            shape=np.array(data.shape, dtype=np.uint32),
        )
    mask = b.stored(kept.reshape(data.shape).numpy(), DataType.UINT1)
    return b.call("constexpr_sparse_to_dense", nonzero_data=numbers, mask=mask)
