"""A mark of tests whose results depend on the processor."""

from __future__ import annotations

import pytest
import torch

needs_avx512 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="kernels for other processors give other special values"
)
