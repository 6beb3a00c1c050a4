"""Attention as one operator, and rotary embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ...shaders.numbers import Rotary
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import broadcast, broadcast_strides, contiguous, copy, permuted, strides, viewed, whole_copy
from ..tape import Tape
from .normalization import softmax
from .products import Bias, matrices, multiply


def _sdpa(tape: Tape, call: Reader) -> None:
    query, key, value = (call.tensor(position) for position in range(3))
    mask = call.optional(3)
    if min(query.rank, key.rank, value.rank) < 2 or key.shape[-1] != query.shape[-1]:
        raise call.error(f"attends from {query.shape} to {key.shape}")
    batch = broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    if batch is None or value.shape[-2] != key.shape[-2]:
        raise call.error(f"attends from {query.shape} to {key.shape} with values {value.shape}")
    operands = [contiguous(tape, item, (*batch, *item.shape[-2:])) for item in (query, key, value)]
    target = tape.result(call.result, (*batch, query.shape[-2], value.shape[-1]))
    attend(tape, call, operands, target, mask=mask, scale=_scale(call, 4, query.shape[-1]))


def attend(
    tape: Tape,
    call: Reader,
    operands: Sequence[Value],
    target: Value,
    *,
    mask: Value | None,
    scale: float,
    causal: int | None = None,
) -> None:
    """softmax(scale * query @ key^T + mask) @ value of operands (batch..., rows, size) with one batch.

    With `causal`, the position of the first row, a row attends to no later positions.
    """
    query, key, value = operands
    if not all(item.is_float for item in (*operands, target)) or (mask is not None and not mask.is_float):
        raise call.error("takes floating-point numbers only")
    *batch, rows, size = query.shape
    seen = key.shape[-2]
    scores = tape.scratch((math.prod(batch), rows, seen), query.datatype)
    rank = key.rank
    turned = permuted(tape, key, (*range(rank - 2), rank - 1, rank - 2))
    bias = None if mask is None else _mask(tape, call, mask, (*batch, rows, seen))
    multiply(tape, matrices(tape, query, seen), matrices(tape, turned, rows), scores, size, alpha=scale, bias=bias)
    shares = tape.scratch(scores.shape, query.datatype)
    softmax(tape, scores, shares, seen, 1, causal=None if causal is None else (causal, rows))
    columns = value.shape[-1]
    flat = viewed(target, (math.prod(batch), rows, columns))
    multiply(tape, matrices(tape, shares, columns), matrices(tape, value, rows), flat, seen)


def _mask(tape: Tape, call: Reader, mask: Value, shape: tuple[int, ...]) -> Bias:
    if mask.rank > len(shape) or broadcast(mask.shape, shape) != shape:
        raise call.error(f"has a mask {mask.shape} for scores {shape}")
    steps = broadcast_strides(mask.shape, shape)
    if any(steps[:-2]):
        # One step from each matrix to the next: the batch is repeated if necessary.
        kept = (1,) * (len(shape) - mask.rank) + mask.shape
        mask = contiguous(tape, mask, (*shape[:-2], *kept[-2:]))
        steps = (math.prod(kept[-2:]), *broadcast_strides(kept[-2:], shape[-2:]))
    else:
        steps = (0, *steps[-2:])
    return Bias(mask, *steps)


def _scale(call: Reader, position: int, size: int) -> float:
    return call.number(position, 1.0 / math.sqrt(max(size, 1)))


def _sdpa_with_cache(tape: Tape, call: Reader) -> None:
    """Write keys and values of (batch, rows, heads, size) into the caches first."""
    query, key, value, keys, values = (call.tensor(position, 4) for position in range(5))
    start = call.integer(5)
    for new, cache in ((key, keys), (value, values)):
        apart = (*cache.shape[:1], *cache.shape[2:]) == (*new.shape[:1], *new.shape[2:])
        if cache.block.content is not None or not apart or not 0 <= start <= cache.shape[1] - new.shape[1]:
            raise call.error(f"writes {new.shape} at {start} of a cache {cache.shape}")
        there = strides(cache.shape)
        copy(tape, new, cache, new.shape, strides(new.shape), there, to_offset=start * there[1])
    _attend_to_cache(tape, call, query, keys, values, start)


def _attend_to_cache(tape: Tape, call: Reader, query: Value, keys: Value, values: Value, start: int) -> None:
    """From (batch, rows, heads, size) to the first positions of caches (batch, positions, heads, size)."""
    batch, rows, heads, size = query.shape
    seen, groups = start + rows, keys.shape[2]
    fits = keys.shape == values.shape and (keys.shape[0], keys.shape[3]) == (batch, size)
    if not fits or not seen <= keys.shape[1] or groups < 1 or heads % groups:
        raise call.error(f"attends from {query.shape} at {start} to {keys.shape} with values {values.shape}")
    turned = permuted(tape, query, (0, 2, 1, 3))
    operands = [turned, *(_heads(tape, cache, heads, seen) for cache in (keys, values))]
    mask = call.optional(7)
    causal = start if mask is None and call.truth(9) else None
    made = tape.scratch((batch, heads, rows, size), query.datatype)
    attend(tape, call, operands, made, mask=mask, scale=_scale(call, 10, size), causal=causal)
    target = tape.result(call.result, query.shape)
    own = strides(made.shape)
    whole_copy(tape, made, target, [own[axis] for axis in (0, 2, 1, 3)])


def _heads(tape: Tape, cache: Value, heads: int, seen: int) -> Value:
    """The first positions of a cache as (batch, heads, positions, size): groups of heads share one."""
    batch, _, groups, size = cache.shape
    made = tape.scratch((batch, groups, heads // groups, seen, size), cache.datatype)
    own = strides(cache.shape)
    whole_copy(tape, cache, made, (own[0], own[2], 0, own[1], own[3]))
    return viewed(made, (batch, heads, seen, size))


# -- rotary embeddings -------------------------------------------------------------------------------------------------


def _rotary(tape: Tape, call: Reader) -> None:
    cosines, sines = call.tensor(2), call.tensor(3)
    for value, result in zip(_both(call), call.results, strict=True):
        row = value.shape[3] // 2
        if value.shape[3] % 2 or cosines.shape != sines.shape or cosines.count != value.shape[1] * row:
            raise call.error(f"turns {value.shape} by {cosines.shape} and {sines.shape}")
        target = tape.result(result, value.shape)
        _turn(tape, call, value, (cosines, sines), target, Rotary.PAIRS, value.shape[3], row, 0)


def _rotary_halves(tape: Tape, call: Reader) -> None:
    cosines, sines = call.tensor(2, 2), call.tensor(3, 2)
    first = call.integer(4)
    for value, result in zip(_both(call), call.results, strict=True):
        row = cosines.shape[1]
        fits = cosines.shape == sines.shape and row % 2 == 0 and row <= value.shape[3]
        if not fits or not 0 <= first <= cosines.shape[0] - value.shape[1]:
            raise call.error(f"turns {value.shape} by {cosines.shape} and {sines.shape} from {first} on")
        _turn(tape, call, value, (cosines, sines), tape.result(result, value.shape), Rotary.HALVES, row, row, first)


def _both(call: Reader) -> tuple[Value, Value]:
    if len(call.results) != 2:
        raise call.error(f"has {len(call.results)} results instead of 2")
    return call.tensor(0, 4), call.tensor(1, 4)


def _rotary_interleaved(tape: Tape, call: Reader) -> None:
    value, angles = call.tensor(0, 3), call.tensor(1)
    _, positions, size = value.shape
    if size % 2 or angles.count != positions * size:
        raise call.error(f"turns {value.shape} by {angles.shape}")
    whole = viewed(value, (*value.shape[:2], 1, size))
    target = tape.result(call.result, value.shape)
    _turn(tape, call, whole, (angles, angles), target, Rotary.INTERLEAVED, size, size, 0)


def _turn(
    tape: Tape,
    call: Reader,
    value: Value,
    angles: tuple[Value, Value],
    target: Value,
    kind: Rotary,
    turned: int,
    row: int,
    first: int,
) -> None:
    if not all(item.is_float for item in (value, *angles, target)):
        raise call.error("takes floating-point numbers only")
    _, positions, heads, size = value.shape
    push = (value.count, size, heads, positions, turned, row, first)
    tape.dispatch("rotary", (value, *angles, target), push, (target.is_half, kind), items=value.count)


KERNELS: Final[dict[str, Kernel]] = {
    "et_vk.sdpa.default": _sdpa,
    "sdpa_with_kv_cache.default": _sdpa_with_cache,
    "et_vk.apply_rotary_emb.default": _rotary,
    "et_vk.apply_rotary_emb_hf.default": _rotary_halves,
    "et_vk.apply_rotary_emb_interleaved.default": _rotary_interleaved,
}
