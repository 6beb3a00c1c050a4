"""Writes the fuzzers' start corpus: `python corpus.py FOLDER` makes FOLDER/pte, FOLDER/ptd,
FOLDER/seeds and FOLDER/delegates."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import delegates
import seeds


def main(folder: Path) -> None:
    stock = None
    if importlib.util.find_spec("executorch") is not None:
        stock = folder / "stock"
        stock.mkdir(parents=True, exist_ok=True)
        script = Path(__file__).parent.parent / "stock_external.py"
        subprocess.run([sys.executable, str(script), str(stock)], check=True, capture_output=True)
    made = seeds.make(stock)
    (folder / "seeds").write_bytes(pickle.dumps(made))
    (folder / "delegates").write_bytes(pickle.dumps(delegates.make()))
    for kind in ("pte", "ptd"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for name, seed in made.items():
        (folder / "pte" / name).write_bytes(seed.program)
        for index, data in enumerate(seed.data):
            (folder / "ptd" / f"{name}-{index}").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
