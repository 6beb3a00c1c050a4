"""Checkpoints of quantized weights, packed by the formulas of their public layouts, and the numbers that they mean."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from small_models import build, save_tokenizer


@dataclass
class Packed:
    """A layer's tensors in a file, and the numbers of its weight."""

    tensors: dict[str, torch.Tensor]
    numbers: torch.Tensor
    integers: torch.Tensor
    scales: torch.Tensor


@dataclass
class Folder:
    """A folder with a model, and the numbers that each of its packed layers means."""

    place: Path
    layers: dict[str, Packed] = field(default_factory=dict)


def words(integers: torch.Tensor, bits: int, axis: int, order: list[int] | None = None) -> torch.Tensor:
    """Integers from 0 as words of 32 bits along an axis, number by number; `order`: which number is at each place."""
    count = 32 // bits
    moved = integers.movedim(axis, -1).tolist()
    rows = []
    for given in moved:
        row = given + [0] * (-len(given) % count)
        found = []
        for start in range(0, len(row), count):
            word = 0
            for place, index in enumerate(order or range(count)):
                word |= row[start + index] << (bits * place)
            found.append(word - (1 << 32) if word >= 1 << 31 else word)
        rows.append(found)
    return torch.tensor(rows, dtype=torch.int32).movedim(-1, axis).contiguous()


def quantized(
    weight: torch.Tensor, bits: int, groups: torch.Tensor, zeros: bool, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers from 0, scales of float16 and zero points by group, of a weight whose inputs have these groups."""
    count, half = int(groups.max()) + 1, 1 << (bits - 1)
    scales = torch.stack([weight[:, groups == group].abs().amax(1) for group in range(count)], 1) / (half - 0.5)
    scales = scales.half().float()
    points = torch.full_like(scales, half, dtype=torch.int64)
    if zeros:
        points += torch.randint(-2, 3, points.shape, generator=generator)
    integers = (weight / scales[:, groups]).round().long() + points[:, groups]
    integers = integers.clamp(0, 2 * half - 1)
    numbers = (integers - points[:, groups]).float() * scales[:, groups]
    return integers, scales, points, numbers


def gptq(weight: torch.Tensor, bits: int, group: int, **more: Any) -> Packed:
    """GPTQ: `order` shuffles the inputs, `uneven` gives the first group one of the second's, `version` is 1 or 2."""
    inputs = weight.shape[1]
    generator = torch.Generator().manual_seed(0)
    index = torch.arange(inputs) // (inputs if group == -1 else group)
    if more.get("order"):
        index = index[torch.randperm(inputs, generator=generator)]
    if more.get("uneven"):
        index = index.clone()
        index[int((index == 1).nonzero()[0])] = 0
    integers, scales, points, numbers = quantized(weight, bits, index, bool(more.get("zeros")), generator)
    stored = points - (2 - more.get("version", 1))
    tensors = {
        "qweight": words(integers.t(), bits, 0),
        "qzeros": words(stored.t() & ((1 << bits) - 1), bits, 1),
        "scales": scales.t().half().contiguous(),
        "g_idx": index.int(),
    }
    return Packed(tensors, numbers, integers - (1 << (bits - 1)), scales)


def awq(weight: torch.Tensor, bits: int, group: int, **more: Any) -> Packed:
    """AWQ, layout gemm."""
    index = torch.arange(weight.shape[1]) // (weight.shape[1] if group == -1 else group)
    generator = torch.Generator().manual_seed(0)
    integers, scales, points, numbers = quantized(weight, bits, index, bool(more.get("zeros")), generator)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {
        "qweight": words(integers.t(), bits, 1, order),
        "qzeros": words(points.t(), bits, 1, order),
        "scales": scales.t().half().contiguous(),
    }
    return Packed(tensors, numbers, integers - (1 << (bits - 1)), scales)


def compressed(weight: torch.Tensor, bits: int, group: int, **more: Any) -> Packed:
    """compressed-tensors, format pack-quantized."""
    inputs = weight.shape[1]
    generator = torch.Generator().manual_seed(0)
    index = torch.arange(inputs) // (inputs if group == -1 else group)
    if more.get("order"):
        index = index[torch.randperm(inputs, generator=generator)]
    integers, scales, points, numbers = quantized(weight, bits, index, bool(more.get("zeros")), generator)
    tensors = {
        "weight_packed": words(integers, bits, 1),
        "weight_scale": scales.half(),
        "weight_shape": torch.tensor(weight.shape),
    }
    if more.get("zeros"):
        tensors["weight_zero_point"] = words(points, bits, 0)
    if more.get("order"):
        tensors["weight_g_idx"] = index.int()
    return Packed(tensors, numbers, integers - (1 << (bits - 1)), scales)


PACKERS = {"gptq": gptq, "awq": awq, "compressed-tensors": compressed}


def settings_of(method: str, bits: int, group: int, **more: Any) -> dict[str, Any]:
    """The quantization_config of config.json."""
    if method == "compressed-tensors":
        inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": False}
        weights = {
            "num_bits": bits,
            "type": "int",
            "symmetric": not more.get("zeros"),
            "strategy": "channel" if group == -1 else "group",
            "group_size": None if group == -1 else group,
        }
        return {
            "quant_method": method,
            "format": "pack-quantized",
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": weights,
                    "input_activations": inputs if more.get("dynamic") else None,
                }
            },
            "ignore": ["lm_head"],
        }
    found: dict[str, Any] = {"quant_method": method, "bits": bits, "group_size": group}
    if method == "awq":
        return found | {"zero_point": True, "version": "gemm"}
    if more.get("version") == 2:
        found["checkpoint_format"] = "gptq_v2"
    return found | {"desc_act": bool(more.get("order")), "sym": not more.get("zeros")}


def save(place: Path, method: str, bits: int = 4, group: int = 32, family: str = "llama", **more: Any) -> Folder:
    """A folder of a small model whose linear layers, but not the last, are packed.

    `some` are words of the layers that `more` (zeros, order, uneven) is for; by default it is for all.
    """
    count = save_tokenizer(place)
    some = more.pop("some", "")
    model = build(family, vocab_size=count, **more.pop("sizes", {})).half()
    model.save_pretrained(place)
    tensors = load_file(place / "model.safetensors")
    found = Folder(place)
    for path, layer in model.named_modules():
        if isinstance(layer, torch.nn.Linear) and path != "lm_head":
            given = more if some in path else {"version": more.get("version", 1)}
            packed = PACKERS[method](layer.weight.detach().float(), bits, group, **given)
            del tensors[f"{path}.weight"]
            tensors |= {f"{path}.{name}": value for name, value in packed.tensors.items()}
            found.layers[path] = packed
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    config = json.loads((place / "config.json").read_text("utf-8"))
    config["quantization_config"] = settings_of(method, bits, group, **more)
    (place / "config.json").write_text(json.dumps(config), "utf-8")
    return found
