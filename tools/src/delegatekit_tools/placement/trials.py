"""Measures a program on backends that run here, piece by piece and as a whole, for the fastest placement."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil, sqrt
from statistics import median
from typing import Any, Final

from torch.export import ExportedProgram

from delegatekit.pipeline import LoweredProgram
from delegatekit_api import DelegateKitError

from .clock import Measurer, Timed, typical
from .measurements import MARGIN, Candidate, Tuned, UnitTimes, Verification, best_single
from .pieces import Lowerer, Pieces, estimated, median_by_signature

#: Factors on the cost of borders in the mixtures that are measured: the savings of joining are an average.
_SCALES: Final = (1.0, 2.0, 0.5)
#: The name in messages for failures of no backend.
_RUNTIME: Final = "the runtime's own operators"
#: Seconds that a clock may not see.
_TICK: Final = 1e-9


class Tuning:
    """Measures one program."""

    def __init__(
        self,
        lower: Lowerer,
        backends: Sequence[str],
        measurer: Measurer,
        wishes: Collection[str] = (),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`wishes` are the operators that the backends ask for whole."""
        self._lower = lower
        self._wishes = wishes
        self._backends = list(backends)
        self._measurer = measurer
        self._say = say
        self._left_out: dict[str, str] = {}

    def run(self, versions: Mapping[str, str], options: Mapping[str, Mapping[str, Any]]) -> Tuned:
        """Everything measured. A backend that fails is left out with its reason, and does not stop the others.

        Raises DelegateKitError if nothing at all can be lowered.
        """
        pieces = list(self._all_pieces())
        found = self._candidates(pieces)
        programs = {item.name: program for item, program in found}
        self._say(f"timing {len(found)} placements as a whole")
        timed = dict(zip(programs, self._measurer.wholes(list(programs.values())), strict=True))
        kernels = {key: seconds for one in pieces for key, seconds in one.kernels.items()}
        candidates = []
        for item, program in found:
            taken, reason = timed[item.name], timed[item.name].estimate
            seconds = typical(taken) if taken.seconds else estimated(program, self._measurer, kernels)
            candidates.append(replace(item, seconds=seconds, estimate=reason))
        candidates, verification = self._verified(candidates, timed, programs)
        return Tuned(
            versions,
            options,
            tuple(candidates),
            self._units(pieces),
            {name: max(one.borders.get(name, 0.0) for one in pieces) for name in self._usable} if pieces else {},
            self._left_out,
            verification,
        )

    def _verified(
        self, candidates: list[Candidate], timed: Mapping[str, Timed], programs: Mapping[str, LoweredProgram]
    ) -> tuple[list[Candidate], Verification | None]:
        """The fastest candidate that is no single one, against the fastest single one; with the times found thereby.

        The fastest of many is often just the luckiest: where it would be chosen, it has to be so again, from scratch.
        """
        rivals = [item for item in candidates if timed[item.name].rounds]
        others = [item for item in rivals if not item.is_single]
        singles = [item for item in rivals if item.is_single]
        best = best_single(candidates)
        if not others or best not in singles:
            return candidates, None
        fastest = min(others, key=lambda item: item.seconds)
        verification = _against(fastest, best, timed)
        if fastest.seconds >= best.seconds * (1 - MARGIN):
            return candidates, verification
        self._say(f"verifying {fastest.name} against {', '.join(item.name for item in singles)}")
        names = [fastest.name, *(item.name for item in singles)]
        again = dict(zip(names, self._measurer.again([programs[name] for name in names]), strict=True))
        if any(not item.seconds for item in again.values()):
            return candidates, None  # what cannot be verified is not chosen
        candidates = [
            replace(item, seconds=typical(again[item.name])) if item.name in again else item for item in candidates
        ]
        return candidates, _against(fastest, best_single(candidates), again)

    def _units(self, pieces: Sequence[Pieces]) -> dict[str, UnitTimes]:
        estimates = {runner for one in pieces for runner in one.estimates}
        return {
            key: UnitTimes(name, count, seconds, tuple(sorted(estimates & seconds.keys())))
            for key, (name, count, seconds) in median_by_signature(pieces).items()
        }

    def _all_pieces(self) -> list[Pieces]:
        """The measured pieces, for each choice of backends whose operators are not decomposed; equal ones once."""
        found: list[Pieces] = []
        choices: list[tuple[str, ...] | None] = [None]
        if len(self._backends) > 1:
            choices += [(name,) for name in self._backends]
        for keep in choices:
            if keep is None or keep[0] in self._usable:
                pieces = Pieces(self._lower, self._usable, keep, self._measurer)
                if self._measure(pieces, [other.form for other in found]):
                    found.append(pieces)
        if len(found) > 1:
            pieces = Pieces(self._lower, self._usable, self._quickest_form(found), self._measurer)
            if self._measure(pieces, [other.form for other in found]):
                found.append(pieces)
        return found

    def _measure(self, pieces: Pieces, known: Sequence[object]) -> bool:
        """Measure the pieces, unless their form is known; returns whether it did."""
        what = "" if pieces.keep is None else f" with {', '.join(pieces.keep) or 'none'} whole"
        if not self._tolerantly(_RUNTIME, pieces.find_units) or pieces.form in known:
            return False
        self._say(f"timing each operator on the runtime{what}")
        if not self._tolerantly(_RUNTIME, partial(pieces.measure_units, "")):
            return False
        takers = [name for name in self._usable if name in pieces.takers]
        for place, name in enumerate(takers, 1):
            self._say(f"timing each operator on {name}{what}{_count(place, takers)}")
            self._tolerantly(name, partial(pieces.measure_units, name))
        takers = [name for name in takers if name in self._usable]
        for place, name in enumerate(takers, 1):
            self._say(f"timing operators joined on {name}{what}{_count(place, takers)}")
            self._tolerantly(name, partial(pieces.measure_borders, name))
        return True

    def _candidates(self, pieces: Sequence[Pieces]) -> list[tuple[Candidate, LoweredProgram]]:
        """All placements that are timed as a whole; of those with the same file the first."""
        usable = tuple(self._usable)
        wanted = [Candidate("runtime alone", (), 0.0)]
        wanted += [Candidate(f"{name} alone", (name,), 0.0) for name in usable]
        if len(usable) > 1:
            wanted.append(Candidate(", then ".join(usable), usable, 0.0))
        number = 0
        for one in pieces:
            for scale in _SCALES:
                number += 1
                placement = one.mixture(scale)
                wanted.append(Candidate(f"mixture {number}", usable, 0.0, placement, one.keep))
        self._say(f"lowering {len(wanted)} placements as a whole")
        found: dict[str, tuple[Candidate, LoweredProgram]] = {}
        for item in wanted:

            def add(item: Candidate = item) -> None:
                program = self._lower(item.backends, partition=item.placement, keep=item.keep)
                delegates = sum(len(method.delegates) for method in program.methods.values())
                known = replace(item, delegates=delegates)
                found.setdefault(hashlib.sha256(program.buffer).hexdigest(), (known, program))

            self._tolerantly(item.name, add)
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self._left_out.items())
            raise DelegateKitError(f"nothing could be lowered: {reasons}", where="tune")
        return list(found.values())

    def _quickest_form(self, forms: Sequence[Pieces]) -> tuple[str, ...]:
        """Of the operators that a backend asks for whole, those that are faster so in the measured forms."""
        told = [pieces.by_source() for pieces in forms]
        found = []
        for source in sorted(self._wishes):
            ways = [one[source] for one in told if source in one]
            if ways and min(ways)[1]:
                found.append(source)
        return tuple(found)

    @property
    def _usable(self) -> list[str]:
        return [name for name in self._backends if name not in self._left_out]

    def _tolerantly(self, what: str, action: Callable[[], None]) -> bool:
        """Run it; a failure is recorded under `what`."""
        try:
            action()
        except DelegateKitError as error:
            self._left_out.setdefault(what, error.what)
            return False
        return True


def _count(place: int, names: Sequence[str]) -> str:
    return f" ({place} of {len(names)})" if len(names) > 1 else ""


def _against(item: Candidate, other: Candidate, timed: Mapping[str, Timed]) -> Verification:
    """Two candidates that were timed in rounds together."""
    pairs = zip(timed[item.name].seconds, timed[other.name].seconds, strict=True)
    ratios = sorted(mine / max(theirs, _TICK) for mine, theirs in pairs)
    # Of n independent figures, that many are below the median in 97 cases of 100 at the most (a binomial distribution).
    rank = min(len(ratios), ceil(len(ratios) / 2 + sqrt(len(ratios))))
    return Verification(item.name, other.name, median(ratios), ratios[rank - 1], len(ratios))


def example_inputs(programs: Mapping[str, ExportedProgram]) -> dict[str, tuple[tuple[Any, ...], dict[str, Any]]]:
    """The example inputs of each method. Raises DelegateKitError for a program without."""
    found = {}
    for name, program in programs.items():
        if program.example_inputs is None:
            raise DelegateKitError("has no example inputs to measure it with", where=f"method {name}")
        args, kwargs = program.example_inputs
        found[name] = tuple(args), dict(kwargs)
    return found
