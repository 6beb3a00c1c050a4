"""The hooks: what core sees of the backend."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from delegatekit_api import ExecutionError, FormatError
from delegatekit_conformance.plugin_tests import PluginTests
from delegatekit_llama.ir.schemas import SCHEMAS, SDPA
from delegatekit_llama.runtime.kernels import LlamaRuntime


class TestPlugin(PluginTests):
    backend, delegate_id = "llama", "llama"
    wrong_options = ({"leave_out": "nothing"},)


def test_schemas_are_those_of_the_wheel() -> None:
    pytest.importorskip("executorch")
    # In a process of its own: the library registers operators, for good.
    code = (
        "from executorch.extension.llm.custom_ops import custom_ops; import torch\n"
        "print(torch.ops.llama.custom_sdpa.out._schema)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [torch._C.parse_schema(text) for text in SCHEMAS] == [torch._C.parse_schema(said.strip())]


def test_what_kernels_do_not_compute_is_refused() -> None:
    with pytest.raises(FormatError, match=r"no kernel for llama::update_cache.out"):
        LlamaRuntime().kernel("llama::update_cache.out")
    kernel = LlamaRuntime().kernel(SDPA)
    query, cache = torch.ones(1, 2, 4, 8), torch.ones(1, 6, 2, 8)
    with pytest.raises(FormatError, match="causal and without a mask"):
        kernel(query, cache, cache, 0, None, 0.0, False, None, torch.empty(0))
    with pytest.raises(ExecutionError, match="2 tokens from 5 on do not fit into a cache of 6"):
        kernel(query, cache, cache, 5, None, 0.0, True, None, torch.empty(0))
