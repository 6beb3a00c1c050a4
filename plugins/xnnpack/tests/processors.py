"""Marks of tests whose results depend on the processor."""

from __future__ import annotations

import pytest
import torch

_HERE = torch.backends.cpu.get_cpu_capability()
#: XNNPACK's kernels for these processors compute some special values as PyTorch does not.
deviates_on_avx512 = pytest.mark.skipif(_HERE != "AVX512", reason="only XNNPACK's kernels for AVX-512 deviate")
#: And its other kernels do where those for these are exact.
exact_on_avx512 = pytest.mark.skipif(_HERE != "AVX512", reason="only XNNPACK's kernels for AVX-512 are exact")
