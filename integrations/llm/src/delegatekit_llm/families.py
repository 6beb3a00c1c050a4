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


def check_family(config: Any) -> None:
    """Raise UnsupportedError for a model type that is not known, with what a model must do to be one."""
    kind = getattr(config, "model_type", None)
    if kind not in FAMILIES:
        raise UnsupportedError(
            f"model type {kind!r} is not one of the known families: {', '.join(sorted(FAMILIES))}",
            where="config.json",
            hint="a family is known by: a class for AutoModelForCausalLM; attention by transformers' attention "
            "interface (ALL_ATTENTION_FUNCTIONS), causal, without biases or sinks of its own; keys and values put into "
            "`past_key_values.update` by layer, and no other state; rotary embeddings, or none. If these hold, "
            "known_family=False (--unknown-family) tries it, and compares it with the model's own results",
        )
