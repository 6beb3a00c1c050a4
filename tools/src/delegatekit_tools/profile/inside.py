"""The times reported by delegates' runtimes over several calls, as one series for each operator."""

from __future__ import annotations

from collections.abc import Sequence

from delegatekit_api.profiling import OperatorTime

from .measured import OperatorProfile, Times
from .origins import Origins


def operator_profiles(
    calls: Sequence[Sequence[OperatorTime]], position: int, origins: Origins
) -> tuple[OperatorProfile, ...]:
    """The operators of the delegate that the instruction at `position` calls, each with its times in all calls.

    They are in the order of the first call that has each.
    """
    found: dict[tuple[str, int | str | None, int], list[float]] = {}
    for call in calls:
        seen: dict[tuple[str, int | str | None], int] = {}
        for item in call:
            count = seen[item.name, item.key] = seen.get((item.name, item.key), -1) + 1
            found.setdefault((item.name, item.key, count), []).append(item.seconds)
    known = origins.of_operators(position, [key for _, key, _ in found])
    return tuple(
        OperatorProfile(name, Times(tuple(seconds)), key, origin)
        for ((name, key, _), seconds), origin in zip(found.items(), known, strict=True)
    )
