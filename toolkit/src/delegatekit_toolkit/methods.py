"""Compiling the partitions of several methods together, for backends whose delegates share what is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

_PartitionT = TypeVar("_PartitionT")
_ResultT = TypeVar("_ResultT")


def by_position(
    methods: Mapping[str, Sequence[_PartitionT]],
    compile_group: Callable[[Mapping[str, _PartitionT]], Mapping[str, _ResultT]],
) -> dict[str, list[_ResultT]]:
    """Pass the first partitions of all methods to `compile_group`, then the second ones, and so on; results by method.

    The return value of the hook `preprocess_methods` if partitions at one position belong together.

    >>> by_position({"prefill": ["a", "b"], "decode": ["c"]}, lambda group: {name: "".join(group) for name in group})
    {'prefill': ['prefilldecode', 'prefill'], 'decode': ['prefilldecode']}
    """
    results: dict[str, list[_ResultT]] = {name: [] for name in methods}
    for position in range(max(map(len, methods.values()), default=0)):
        group = {name: items[position] for name, items in methods.items() if position < len(items)}
        for name, result in compile_group(group).items():
            results[name].append(result)
    return results
