"""Language models of well-known shapes with random weights, as folders of Hugging Face transformers.

    python benchmarks/random_language_models.py smollm2-135m FOLDER

Each token of the tokenizer is ASCII text, and no two are the same, so that runners which return text tell their tokens.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")

#: Words that encode has; the rest of the vocabulary can only be generated.
_LEARNED: Final = 4096
_BEGIN, _END = "<s>", "</s>"
#: Bytes of a shard, about.
_SHARD: Final = 2 << 30
_DOCS: Final = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Shape:
    """A Llama's sizes. Rotary embeddings are not scaled."""

    title: str
    vocabulary: int
    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    theta: float = 1e4
    #: The embedding is the head as well.
    tied: bool = True

    def config(self) -> dict[str, Any]:
        """The fields of transformers' configuration."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": self.tied,
            # Layers' results have about the size of their inputs: with less, each token would be followed by itself.
            "initializer_range": self.hidden**-0.5,
            "bos_token_id": 0,
            "eos_token_id": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.theta},
        }


SHAPES: Final = MappingProxyType(
    {
        "tiny": Shape("tiny, for tests", 512, 64, 128, 2, 4, 2, 1e4),
        "smollm2-135m": Shape("SmolLM2-135M", 49_152, 576, 1536, 30, 9, 3, 1e5),
        "llama-0.1b": Shape("0.1 billion", 32_000, 768, 2048, 12, 12, 4, tied=False),
        "llama-0.5b": Shape("0.5 billion", 32_000, 1280, 3456, 24, 20, 4, tied=False),
        "llama-3.2-1b": Shape("Llama-3.2-1B", 128_256, 2048, 8192, 16, 32, 8, 5e5),
        "llama-3.1-8b": Shape("Llama-3.1-8B", 128_256, 4096, 14_336, 32, 32, 8, 5e5, tied=False),
    }
)


def text_at_hand() -> str:
    """This project's documentation, without what is not ASCII."""
    pages = (path.read_text(encoding="utf-8") for path in sorted(_DOCS.glob("*.md")))
    return "\n".join(pages).encode("ascii", "ignore").decode()


def make_tokenizer(vocabulary: int) -> Any:
    """A byte-level BPE, learned from the text at hand, with `vocabulary` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    # Half of the vocabulary at most, so that there are other tokens in small ones as well.
    trainer = trainers.BpeTrainer(vocab_size=min(_LEARNED, vocabulary // 2), special_tokens=[_BEGIN, _END])
    trained.train_from_iterator(text_at_hand().splitlines(), trainer)
    content = json.loads(trained.to_str())
    words = content["model"]["vocab"]
    words.update({f"<{number}>": number for number in range(len(words), vocabulary)})
    return Tokenizer.from_str(json.dumps(content))


def prompt_of(tokenizer: Any, tokens: int) -> str:
    """A text of exactly so many tokens."""
    for text in _texts(text_at_hand().split(), tokens):
        if len(tokenizer.encode(text).ids) == tokens:
            return text
    raise SystemExit(f"no text of {tokens} tokens was found")


def _texts(words: list[str], tokens: int) -> Iterator[str]:
    """Texts of about so many tokens: a word has one at least, and few have more than three."""
    for start in range(0, len(words), 50):
        for count in range(tokens // 3, tokens + 1):
            yield " ".join(words[start : start + count])


def make(name: str, folder: Path) -> None:
    """Write the folder of a model, in bfloat16, one shard in memory at a time; config.json comes last."""
    from transformers import AutoConfig, PreTrainedTokenizerFast

    shape = SHAPES[name]
    folder.mkdir(parents=True, exist_ok=True)
    # What `save_pretrained` of a model would add, and other products read.
    told = {"dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}
    config = AutoConfig.for_model("llama", **told, **shape.config())
    _write_weights(config, folder)
    tokenizer = make_tokenizer(shape.vocabulary)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=_BEGIN, eos_token=_END).save_pretrained(folder)
    config.save_pretrained(folder)


def _write_weights(config: Any, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config)
    shards: list[dict[str, torch.Size]] = [{}]
    for name, parameter in model.named_parameters():
        if 2 * sum(shape.numel() for shape in (*shards[-1].values(), parameter.shape)) > _SHARD and shards[-1]:
            shards.append({})
        shards[-1][name] = parameter.shape
    generator, places = torch.Generator().manual_seed(0), {}
    for number, shapes in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {key: torch.ones(shape, dtype=torch.bfloat16) for key, shape in shapes.items()}
        for tensor in tensors.values():
            if tensor.dim() > 1:
                tensor.normal_(0, config.initializer_range, generator=generator)
        save_file(tensors, folder / name, metadata={"format": "pt"})
        places.update(dict.fromkeys(shapes, name))
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
