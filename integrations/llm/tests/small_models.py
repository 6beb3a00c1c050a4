"""Small models of each family with random weights, texts of theirs, and a tokenizer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
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

#: The same for models of an encoder and a decoder.
_PAIR_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
_T5_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_heads": 4,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "relative_attention_max_distance": 64,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
PAIR_SIZES: dict[str, dict[str, Any]] = {
    "mt5": _T5_SIZES,
    "t5": _T5_SIZES,
    "whisper": {**_PAIR_SIZES, "num_mel_bins": 20, "max_source_positions": 40, "max_target_positions": 128},
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


def build_pair(family: str, **more: Any) -> Any:
    """A model of an encoder and a decoder: as `build`."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    loader: Any = AutoModelForSpeechSeq2Seq if family == "whisper" else AutoModelForSeq2SeqLM
    config = AutoConfig.for_model(family, **(PAIR_SIZES.get(family, _PAIR_SIZES) | more))
    torch.manual_seed(0)
    model = loader.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(_factor(family, name))
    return model


def _factor(family: str, name: str) -> float:
    looked_up = "embed" in name or "shared" in name
    if "relative_attention_bias" in name:
        return 100.0
    if "t5" in family:
        return 1.0 if looked_up else 6.0
    return 10.0 if looked_up else 5.0


def source_of(family: str, count: int = 30) -> torch.Tensor:
    """What an encoder takes: tokens, or a spectrogram."""
    if family == "whisper":
        return torch.randn(1, 20, 80, generator=torch.Generator().manual_seed(2))
    return prompt_of(count)


def text_behind(model: Any, source: torch.Tensor, count: int, start: tuple[int, ...] = ()) -> list[int]:
    """The likeliest tokens behind an encoder, by transformers' own `generate`, without what models add to it."""
    from transformers import GenerationConfig, GenerationMixin

    before = model.generation_config
    given = model.config.decoder_start_token_id
    # With a cache transformers makes as many layers of it as the encoder has.
    model.generation_config = GenerationConfig(decoder_start_token_id=given, pad_token_id=0, use_cache=False)
    try:
        more = {"decoder_input_ids": torch.tensor([start])} if start else {}
        found = GenerationMixin.generate(model, source, max_new_tokens=count, do_sample=False, **more)
    finally:
        model.generation_config = before
    return [int(token) for token in found[0, -count:]]


def continued_behind(encoder: Any, decoder: Any, source: torch.Tensor, count: int, start: Sequence[int]) -> list[int]:
    """The likeliest tokens behind an encoder, one by one, by a pair of modules or a file's methods."""
    tokens: list[int] = []
    with torch.no_grad():
        states = encoder(source)
        while len(tokens) < count:
            begun = [*start, *tokens]
            for position in range(len(begun) - 1 if tokens else 0, len(begun)):
                logits = decoder(torch.tensor([[begun[position]]]), states, torch.tensor([position]))
            tokens.append(int(logits[0, -1].argmax()))
    return tokens


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


def logits_of(forward: Called, tokens: Sequence[int]) -> torch.Tensor:
    """The logits of each token of a text that is given one by one: (n, vocabulary)."""
    with torch.no_grad():
        return torch.stack(
            [forward(torch.tensor([[token]]), torch.tensor([start]))[0, -1] for start, token in enumerate(tokens)]
        )


def in_stock(content: bytes) -> Called:
    """The method `forward` of a file in ExecuTorch's runtime, called as a module."""
    from executorch.runtime import Runtime

    method: Any = Runtime.get().load_program(content).load_method("forward")

    def call(tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        assert content  # the runtime reads it where it is: it must live as long as the method
        found: torch.Tensor = method.execute([tokens, start])[0]
        return found.clone()

    return call


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
