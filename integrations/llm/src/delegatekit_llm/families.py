"""Families of language models that are known to work: each is compared with transformers' own model by the tests."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import UnsupportedError

#: `model_type` of a configuration -> the models' usual name.
FAMILIES: Final = {
    "cohere": "Command R",
    "gemma": "Gemma",
    "gemma2": "Gemma 2",
    "gemma3_text": "Gemma 3",
    "gpt_neox": "GPT-NeoX, Pythia",
    "granite": "Granite 3",
    "llama": "Llama 2, Llama 3, SmolLM, SmolLM2, TinyLlama",
    "mistral": "Mistral",
    "olmo": "OLMo",
    "olmo2": "OLMo 2",
    "phi": "Phi-1, Phi-2",
    "phi3": "Phi-3, Phi-4",
    "qwen2": "Qwen2, Qwen2.5",
    "qwen3": "Qwen3",
    "smollm3": "SmolLM3",
    "stablelm": "StableLM",
}
#: The same for models of an encoder and a decoder.
ENCODER_DECODERS: Final = {
    "bart": "BART",
    "marian": "Marian, OPUS-MT",
    "mbart": "mBART",
    "mt5": "mT5",
    "t5": "T5, FLAN-T5",
    "whisper": "Whisper",
}


def is_encoder_decoder(config: Any) -> bool:
    """True for a model of an encoder and a decoder."""
    return bool(getattr(config, "is_encoder_decoder", False))


def check_family(config: Any) -> None:
    """Raise UnsupportedError for a model type that is not known, with what a model must do to be one."""
    kind = getattr(config, "model_type", None)
    known = ENCODER_DECODERS if is_encoder_decoder(config) else FAMILIES
    if kind not in known:
        names = ", ".join(sorted({**FAMILIES, **ENCODER_DECODERS}))
        raise UnsupportedError(
            f"model type {kind!r} is not one of the known families: {names}",
            where="config.json",
            hint="a family is known by: a class for AutoModelForCausalLM, or AutoModelForSeq2SeqLM; attention by "
            "transformers' attention interface (ALL_ATTENTION_FUNCTIONS), without sinks of its own; keys and values "
            "put into `past_key_values.update` by layer, and no other state; positions by rotary embeddings, by a "
            "table, or by biases as T5's. If these hold, "
            "known_family=False (--unknown-family) tries it, and compares it with the model's own results",
        )
