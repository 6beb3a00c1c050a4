"""Writes the mutation scores into docs/faults.md: the parts of the backends that the given files are about.

python docs/mutation_scores.py out/mutants/xnnpack.json ...    # shards of one run are put together
"""

from __future__ import annotations

import sys
from pathlib import Path

from delegatekit_conformance.mutants.page import updated
from delegatekit_conformance.mutants.score import Score, merge, read

PAGE = Path(__file__).with_name("faults.md")


def main(files: list[str]) -> None:
    """Read the scores and write the page."""
    parts: dict[str, list[Score]] = {}
    for file in files:
        score = read(Path(file))
        parts.setdefault(score.backend, []).append(score)
    scores = [merge(shards) for shards in parts.values()]
    PAGE.write_text(updated(PAGE.read_text("utf-8"), scores), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
