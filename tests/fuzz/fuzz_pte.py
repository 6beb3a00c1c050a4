"""Fuzzes the .pte reader with coverage feedback: `python fuzz_pte.py [libFuzzer options] FOLDER/pte`; see README.md."""

from __future__ import annotations

import pickle
import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["delegatekit", "delegatekit_api"]):
    import delegatekit_tools.inspection.inspection  # noqa: F401

import targets
from mutations import mutate

SEEDS = pickle.loads((Path(sys.argv[-1]).parent / "seeds").read_bytes())
PROGRAMS = [seed.program for seed in SEEDS.values()]
#: The data files of all seeds: their keys do not contradict each other.
DATA = [data for name, seed in SEEDS.items() if name != "stock-two" for data in seed.data]


def one(data: bytes) -> None:
    program = targets.load(data, DATA)
    if program is not None:
        targets.make_methods(program)


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the time our own mutations, else libFuzzer's."""
    source = random.Random(seed)
    if source.random() < 0.5 and len(data) >= 16:
        return mutate(data, PROGRAMS, source)[:max_size]
    return bytes(atheris.Mutate(data, max_size))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one, custom_mutator=mutated)
    atheris.Fuzz()
