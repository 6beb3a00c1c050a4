"""TOSA programs that stock ExecuTorch's Arm backend passes to Vela, read and checked by the toolkit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa.reader import read
from delegatekit_toolkit.tosa.reference import run


@pytest.mark.slow
def test_stocks_files_read_and_run_equally(stock_files: Path) -> None:
    for path in stock_files.glob("*.tosa"):
        data = path.read_bytes()
        graph = read(data)
        rewritten = tosa.write(graph)
        assert tosa.write(read(rewritten)) == rewritten
        x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape, dtype=np.int8)
        for want, result in zip(run(data, [x]), run(rewritten, [x]), strict=True):
            np.testing.assert_array_equal(result, want)


@pytest.mark.slow
def test_what_stock_writes_keeps_the_rules(stock_files: Path) -> None:
    for path in stock_files.glob("*.tosa"):
        tosa.read(path.read_bytes()).verify()
