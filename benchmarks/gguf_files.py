"""A Llama of Hugging Face transformers as a GGUF file, for llama.cpp. Needs the package `gguf`, and not PyTorch."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

#: A layer's tensor in transformers -> in GGUF.
_OF_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OF_MODEL: Final = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(folder: Path, path: Path) -> None:
    """Write a folder's model in float32, without a vocabulary: tokens are numbers."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    heads, key_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for source, values in _tensors(folder):
        name = source.removesuffix(".weight")
        tensor = values
        if name.endswith("q_proj"):
            tensor = _interleaved(tensor, heads)
        elif name.endswith("k_proj"):
            tensor = _interleaved(tensor, key_heads)
        writer.add_tensor(f"{_name(name)}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(source: str) -> str:
    if source in _OF_MODEL:
        return _OF_MODEL[source]
    layer, _, rest = source.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_OF_LAYER[rest]}"


def _interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head in the order of llama.cpp's rotary embeddings: pairs are neighbours, not half a head apart."""
    pairs = weight.reshape(heads, 2, -1, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(weight.shape)


def _tensors(folder: Path) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Names and float32 values of the bfloat16 tensors in *.safetensors."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
        data = np.memmap(path, np.uint8, "r", offset=8 + size)
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if entry["dtype"] != "BF16":
                raise ValueError(f"{name} is {entry['dtype']}, not BF16")
            begin, end = entry["data_offsets"]
            halves = data[begin:end].view(np.uint16).reshape(entry["shape"])
            yield name, (halves.astype(np.uint32) << 16).view(np.float32)
