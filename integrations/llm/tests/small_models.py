"""Small models of each family with random weights, texts of theirs, and a tokenizer."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")

#: Tokens of the small models.
VOCABULARY = 300
_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: What families need beside: sizes of heads, windows that are shorter than the texts.
MORE: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3_text": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16, "num_hidden_layers": 7},
    "mistral": {"sliding_window": 8},
    "qwen3": {"head_dim": 16},
}


def build(family: str, **more: Any) -> Any:
    """A model with weights large enough for a text of many different tokens."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **(_SIZES | MORE.get(family, {}) | more))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.mul_(8)
    return model


def text_of(model: Any, prompt: torch.Tensor, count: int) -> list[int]:
    """The likeliest tokens after a prompt (1, n), by transformers itself."""
    found = model.generate(prompt, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
    return [int(token) for token in found[0, prompt.shape[1] :]]


Called = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def continued(forward: Called, prompt: torch.Tensor, chunk: int, count: int) -> list[int]:
    """The likeliest tokens after a prompt (1, n) that is given in chunks, by a decoder or a file's method."""
    tokens: list[int] = []
    with torch.no_grad():
        for start in range(0, prompt.shape[1], chunk):
            logits = forward(prompt[:, start : start + chunk], torch.tensor([start]))
        while True:
            tokens.append(int(logits[0, -1].argmax()))
            if len(tokens) == count:
                return tokens
            logits = forward(torch.tensor([tokens[-1:]]), torch.tensor([prompt.shape[1] + len(tokens) - 1]))


def prompt_of(count: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(1))


TEXT = "the file of a program is read by the runtime, and the runtime runs the operators of the file. " * 4


def save_tokenizer(folder: Path) -> int:
    """A tokenizer whose tokens are all of printable ASCII, with a chat template; returns their number."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer: Any = trainers.BpeTrainer(vocab_size=96, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.chat_template = (
        "{% for message in messages %}{{ bos_token }}{{ message['role'] }} {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}runtime {% endif %}"
    )
    fast.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())
