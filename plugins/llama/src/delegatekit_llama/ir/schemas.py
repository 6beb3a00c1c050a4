"""The operators of ExecuTorch 1.5's library for language models (extension/llm/custom_ops) that programs call."""

from __future__ import annotations

from typing import Final

SDPA: Final = "llama::custom_sdpa.out"
#: The schemas in full.
SCHEMAS: Final = (
    f"{SDPA}(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor? attn_mask=None, float drpout_p=0., "
    "bool is_causal=False, float? scale=None, *, Tensor(a!) out) -> Tensor(a!)",
)
