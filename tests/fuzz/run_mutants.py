"""Runs damaged programs that still load: `python run_mutants.py SEEDS FIRST COUNT`. Started as a process by the tests.

Prints the number of each mutant that it is about to run, so that a crash names its mutant. Memory is limited to what a
machine may give away, each run to a second.
"""

from __future__ import annotations

import pickle
import random
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parent))

import targets
from mutations import change_tables, mutate
from seeds import Seed

#: Address space for this process, in bytes: planned memory above is refused by the system, with an error.
_ADDRESS_SPACE = 6 << 30


class Stopped(BaseException):
    """A run took more than its second."""


def mutant(number: int, seeds: Mapping[str, Seed]) -> tuple[Seed, bytes]:
    """The mutant with this number: always the same. Half of them are changed in meaning only."""
    source = random.Random(number)
    seed = source.choice([seeds[name] for name in sorted(seeds)])
    others = [seeds[name].program for name in sorted(seeds)]
    change = change_tables if source.random() < 0.5 else mutate
    return seed, change(seed.program, others, source)


def _stop(*_: object) -> NoReturn:
    raise Stopped


def main(path: str, first: int, count: int) -> None:
    seeds = pickle.loads(Path(path).read_bytes())
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, _stop)
    ran = stopped = 0
    for number in range(first, first + count):
        seed, data = mutant(number, seeds)
        program = targets.load(data, seed.data)
        for method in targets.make_methods(program) if program is not None else ():
            print(f"mutant {number} of {seed.name}", flush=True)
            signal.setitimer(signal.ITIMER_REAL, 1.0)
            try:
                for _ in range(2):
                    targets.run(method, seed.inputs)
            except Stopped:
                stopped += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            ran += 1
    print(f"done: {ran} ran, {stopped} of them stopped", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
