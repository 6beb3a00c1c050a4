"""Language models of Hugging Face transformers, from a folder to generated text.

    model = delegatekit_llm.lower("folder", backends=["NAME"], context=2048)
    model.save("model.pte")
    for text in delegatekit_llm.Generator("model.pte").stream("Once upon a time"):
        print(text, end="", flush=True)

The layers are the model's own code. Attention and its cache are replaced by ones that can be exported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoder import Decoder
    from .families import ENCODER_DECODERS, FAMILIES
    from .generation import Generation, Generator, Sampling
    from .lowering import LanguageModel, lower
    from .seq2seq import Encoder, TextDecoder

_ROOMS = {
    "ENCODER_DECODERS": "families",
    "FAMILIES": "families",
    "Decoder": "decoder",
    "Encoder": "seq2seq",
    "Generation": "generation",
    "Generator": "generation",
    "LanguageModel": "lowering",
    "Sampling": "generation",
    "TextDecoder": "seq2seq",
    "lower": "lowering",
}

__all__ = [
    "ENCODER_DECODERS",
    "FAMILIES",
    "Decoder",
    "Encoder",
    "Generation",
    "Generator",
    "LanguageModel",
    "Sampling",
    "TextDecoder",
    "lower",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
