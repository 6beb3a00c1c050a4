"""Fuzzes the .ptd reader with coverage feedback: `python fuzz_ptd.py [libFuzzer options] FOLDER/ptd`; see README.md."""

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
FILES = [data for seed in SEEDS.values() for data in seed.data]
#: Programs that need one data file each.
PROGRAMS = [seed.program for seed in SEEDS.values() if len(seed.data) == 1]


def one(data: bytes) -> None:
    if not targets.load_data(data):
        return
    for wanting in PROGRAMS:
        program = targets.load(wanting, [data])
        if program is not None:
            targets.make_methods(program)


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the time our own mutations, else libFuzzer's."""
    source = random.Random(seed)
    if source.random() < 0.5 and len(data) >= 16:
        return mutate(data, FILES, source)[:max_size]
    return bytes(atheris.Mutate(data, max_size))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one, custom_mutator=mutated)
    atheris.Fuzz()
