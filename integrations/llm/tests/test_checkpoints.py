"""Folders whose weights are quantized already: their numbers, what becomes of them, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import packers
import pytest
import torch
from packers import PACKERS
from safetensors.torch import load_file, save_file
from small_models import build, continued, logits_of, prompt_of
from test_lowering import COUNT, in_stock
from torch.utils._python_dispatch import TorchDispatchMode

import delegatekit
from delegatekit_api import DelegateKitError
from delegatekit_llm import Decoder, lower
from delegatekit_llm.checkpoints.layers import IntegerLinear
from delegatekit_llm.folders import load_config, load_model

ONE_LAYER: dict[str, Any] = {"sizes": {"num_hidden_layers": 1}}
INT4 = "int8-dynamic-int4"
EPSILON = torch.finfo(torch.float32).eps


def prompt() -> torch.Tensor:
    return prompt_of(20) % 40


# -- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "bits", "more"),
    [
        ("gptq", 4, {}),
        ("gptq", 8, {"zeros": True}),
        ("gptq", 4, {"version": 2, "zeros": True}),
        ("gptq", 4, {"order": True}),
        ("gptq", 4, {"uneven": True}),
        ("awq", 4, {"zeros": True}),
        ("compressed-tensors", 4, {}),
        ("compressed-tensors", 8, {"zeros": True}),
        ("compressed-tensors", 4, {"order": True}),
    ],
)
@pytest.mark.parametrize("group", [32, -1])
@pytest.mark.parametrize("large", [False, True])
def test_weights_are_the_numbers_of_the_layout(
    method: str, bits: int, group: int, more: Any, large: bool, tmp_path: Path, request: Any
) -> None:
    if group == -1 and ("order" in more or "uneven" in more):
        pytest.skip("one group has no order")
    if large:
        request.getfixturevalue("mapped")
    folder = packers.save(tmp_path, method, bits, group, **more, **ONE_LAYER)
    model = load_model(tmp_path, load_config(tmp_path))
    for path, packed in folder.layers.items():
        layer: Any = model.get_submodule(path)
        assert isinstance(layer, IntegerLinear) and (layer.packed is not None) is large
        assert torch.equal(layer.weight, packed.numbers)
        rows = torch.randn(3, layer.in_features)
        wanted = torch.nn.functional.linear(rows, packed.numbers)
        assert torch.allclose(layer(rows), wanted, rtol=1e-5, atol=1e-5 * float(wanted.abs().max()))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, -1])
@pytest.mark.parametrize("zeros", [False, True])
def test_compressed_tensors_itself_unpacks_the_same(bits: int, group: int, zeros: bool) -> None:
    base = pytest.importorskip(
        "compressed_tensors.compressors.pack_quantized.base", reason="compressed-tensors is not installed"
    )
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    packed = packers.compressed(torch.randn(40, 96), bits, group, zeros=zeros)
    tensors = packed.tensors | {"weight_scale": packed.scales}
    weights = packers.settings_of("compressed-tensors", bits, group, zeros=zeros)["config_groups"]["group_0"]["weights"]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))
    found = base.PackedQuantizationCompressor.decompress(tensors, scheme)["weight"]
    assert torch.equal(found, packed.numbers)


def test_compressed_tensors_converts_what_the_tests_pack_as_awq() -> None:
    pytest.importorskip("compressed_tensors", reason="compressed-tensors is not installed")
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

    packed = packers.awq(torch.randn(40, 96), 4, 32, zeros=True)
    tensors = AutoAWQConverter(group_size=32).process({f"layer.{name}": item for name, item in packed.tensors.items()})
    own = {name.removeprefix("layer."): item for name, item in tensors.items()} | {"weight_scale": packed.scales}
    weights = QuantizationArgs(num_bits=4, type="int", symmetric=False, strategy="group", group_size=32)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    assert torch.equal(PackedQuantizationCompressor.decompress(own, scheme)["weight"], packed.numbers)


# -- what becomes of them --------------------------------------------------------------------------------------------


def integers_of(module: Any) -> list[torch.Tensor]:
    """The integers of a quantized module's weights."""
    return [item for name, item in module.named_buffers() if name.endswith("_proj.integers")]


@pytest.mark.parametrize(
    ("method", "bits", "group", "scheme", "more"),
    [
        ("gptq", 4, 32, INT4, {}),
        ("gptq", 4, 32, INT4, {"order": True}),
        ("gptq", 4, -1, "int8-dynamic-int4-per-channel", {}),
        ("awq", 4, 32, INT4, {"zeros": True, "some": "v_proj"}),
        ("compressed-tensors", 8, -1, "int8-dynamic", {}),
        ("compressed-tensors", 4, 32, None, {"dynamic": True}),
    ],
)
def test_integers_go_into_the_file_as_they_are(
    method: str, bits: int, group: int, scheme: str | None, more: Any, tmp_path: Path
) -> None:
    folder = packers.save(tmp_path, method, bits, group, **more)
    model = lower(tmp_path, ["xnnpack"], context=96, chunk=16, scheme=scheme)
    assert model.quantization is not None
    given = [layer for layer in model.quantization.layers if layer.given]
    assert len(given) == len(folder.layers) and all(layer.quantized for layer in given)
    if "order" not in more:
        for found, packed in zip(integers_of(model.module), folder.layers.values(), strict=True):
            assert torch.equal(found.long(), packed.integers)
    content, start = model.program.buffer, prompt()
    # Integers of four bits, or of eight: and the embedding, the caches and the last layer.
    assert len(content) < 300_000 < 4 * sum(packed.numbers.numel() for packed in folder.layers.values())
    wanted = continued(model.module, start, 16, COUNT)
    assert continued(delegatekit.load(content)["forward"], start, 16, COUNT) == wanted
    assert continued(in_stock(content), start, 16, COUNT) == wanted


class Borders(TorchDispatchMode):
    """The least distance of a number that a module rounds from where it would be rounded the other way."""

    def __init__(self) -> None:
        super().__init__()
        self.nearest = 0.5

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.round.default:
            self.nearest = min(self.nearest, float((args[0] - args[0].floor() - 0.5).abs().min()))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("method", "more"),
    [("gptq", {}), ("gptq", {"uneven": True}), ("awq", {"zeros": True}), ("awq", {"some": "v_proj"})],
)
def test_a_file_parts_from_its_module_only_where_an_activation_lies_between_two_integers(
    method: str, more: Any, tmp_path: Path
) -> None:
    packers.save(tmp_path, method, **more)
    model = lower(tmp_path, ["xnnpack"], context=96, chunk=1, scheme=INT4)
    file = delegatekit.load(model.program.buffer)["forward"]
    with torch.no_grad():
        for position, token in enumerate(torch.randint(4, 40, (96,), generator=torch.Generator().manual_seed(1))):
            given = token.reshape(1, 1), torch.tensor([position])
            with Borders() as borders:
                wanted = model.module(*given)[0, -1]
            difference = float((file(*given)[0, -1] - wanted).abs().max())
            if difference > EPSILON * 64 * float(wanted.abs().max()):  # more than the roundings of a row's sums
                # 255 steps, and roundings of the number, of the scale, of their quotient, and of what made the number.
                assert borders.nearest <= 4 * EPSILON * 255
                break
    assert position > 8


@pytest.mark.parametrize(
    ("backend", "options"), [("vulkan", {}), ("coreml", {"target": "ios18", "precision": "float32"})]
)
@pytest.mark.parametrize(("method", "more"), [("gptq", {}), ("awq", {"zeros": True})])
def test_a_backend_of_float_activations_needs_no_scheme(
    backend: str, options: Any, method: str, more: Any, tmp_path: Path
) -> None:
    packers.save(tmp_path, method, **more, **ONE_LAYER)
    model = lower(tmp_path, [backend], context=96, chunk=1, options={backend: options})
    assert model.told[0] == (
        "scheme int4-weight-only takes the integers: 7 layers are int4 in groups of 32"
        + ", with zero points" * ("zeros" in more)
    )
    assert model.quantization is not None
    assert [layer.given for layer in model.quantization.quantized] == [True] * 7
    exact = load_model(tmp_path, load_config(tmp_path))
    found = continued(delegatekit.load(model.program.buffer)["forward"], prompt(), 1, 32)
    assert found == continued(model.module, prompt(), 1, 32) == continued(Decoder(exact, 96), prompt(), 1, 32)
    assert len(model.program.buffer) < 140_000


def test_layers_of_another_form_are_told(tmp_path: Path) -> None:
    packers.save(tmp_path, "gptq", uneven=True, some="v_proj", **ONE_LAYER)
    model = lower(tmp_path, ["xnnpack"], context=96, scheme=INT4)
    assert model.quantization is not None
    layers = {
        layer.module.rpartition(".")[2]: layer for layer in model.quantization.layers if layer.operator == "linear"
    }
    assert layers["v_proj"].reason == "its weight is integers, but its groups are not all of 32 inputs"
    assert layers["q_proj"].given and layers["lm_head"].quantized and not layers["lm_head"].given


def test_numbers_where_no_scheme_takes_the_integers(tmp_path: Path) -> None:
    packers.save(tmp_path, "gptq", **ONE_LAYER)
    model = lower(tmp_path, ["reference"], context=96)
    assert model.told == ("7 layers of int4 in groups of 32 become float numbers: no scheme of reference takes these",)
    wanted = continued(Decoder(load_model(tmp_path, load_config(tmp_path)), 96), prompt(), 32, 32)
    assert continued(delegatekit.load(model.program.buffer)["forward"], prompt(), 32, 32) == wanted


@pytest.mark.parametrize("scheme", [None, "int8-dynamic"])
def test_numbers_are_quantized_anew_if_asked_for(scheme: str | None, tmp_path: Path) -> None:
    packers.save(tmp_path, "awq", zeros=True, **ONE_LAYER)
    model = lower(tmp_path, ["xnnpack"], context=96, scheme=scheme, dequantize=True)
    anew = f", which {scheme} quantizes anew" if scheme else ""
    assert model.told == (
        f"7 layers of int4 in groups of 32, with zero points become float numbers{anew}: asked for by dequantize",
    )
    if scheme is None:
        wanted = continued(Decoder(load_model(tmp_path, load_config(tmp_path)), 96), prompt(), 32, 32)
        assert continued(delegatekit.load(model.program.buffer)["forward"], prompt(), 32, 32) == wanted
    else:
        assert model.quantization is not None
        assert [layer.given for layer in model.quantization.quantized] == [False] * 8


@pytest.mark.parametrize(
    ("bits", "group", "scheme", "said"),
    [
        (4, 32, None, "which xnnpack multiplies by activations of 8 bits only\n.*--scheme int8-dynamic-int4 takes"),
        (8, -1, INT4, "has other integers than the weights, which are int8 with a scale for each row already"),
        (4, 32, "int8", "calibrates activations, and the weights are int4 in groups of 32 already"),
    ],
)
def test_schemes_that_do_not_take_the_integers(
    bits: int, group: int, scheme: str | None, said: str, tmp_path: Path
) -> None:
    packers.save(tmp_path, "gptq", bits, group, **ONE_LAYER)
    with pytest.raises(DelegateKitError, match=said):
        lower(tmp_path, ["xnnpack"], context=96, scheme=scheme)


def test_the_command_tells_what_became_of_the_integers(tmp_path: Path, cli: Callable[..., Any]) -> None:
    packers.save(tmp_path / "model", "awq", zeros=True, **ONE_LAYER)
    said = cli("lower-llm", str(tmp_path / "model"), "-b", "xnnpack", "--scheme", INT4, "--context", "96")
    assert "7 layers have zero points: what these make is subtracted" in said.out + said.err
    assert "7 have the integers that they came with, 1 are rounded here" in said.out + said.err


# -- large folders ---------------------------------------------------------------------------------------------------


@pytest.fixture
def mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of any size stay in their files."""
    monkeypatch.setattr("delegatekit_llm.folders.LARGE", 0)
    monkeypatch.setattr("delegatekit_llm.mapped._MAPPED", 64)


@pytest.mark.parametrize(("method", "more"), [("gptq", {"order": True}), ("awq", {"zeros": True})])
def test_a_large_folder_gives_the_same_data_file(
    method: str, more: Any, tmp_path: Path, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    packers.save(tmp_path / "model", method, **more, **ONE_LAYER)
    monkeypatch.setattr("delegatekit_toolkit.later._ROOM", 0)
    settings: dict[str, Any] = {"context": 48, "scheme": INT4, "embedding_bits": 8, "external": True}
    one = lower(tmp_path / "model", ["xnnpack"], **settings)
    request.getfixturevalue("mapped")
    other = lower(tmp_path / "model", ["xnnpack"], **settings)
    assert not integers_of(other.module) and integers_of(one.module)
    assert one.program.data_files == other.program.data_files and other.told == one.told
    other.save(tmp_path / "large.pte")
    assert (tmp_path / "large.ptd").read_bytes() == one.program.data_files[""]


# -- torchao ---------------------------------------------------------------------------------------------------------


def rounded_by_torchao(bits: int, *, activations: bool, kind: Any = torch.nn.Linear) -> Any:
    """A model whose layers of a kind torchao has quantized: in groups of 32 (4 bits), or row by row."""
    quantization = pytest.importorskip("torchao.quantization")
    model = build("llama")
    granularity = quantization.PerGroup(32) if bits == 4 else quantization.PerAxis(0)
    dtype = getattr(torch, f"int{bits}")
    config = quantization.IntxWeightOnlyConfig(dtype, granularity)
    if activations:
        config = quantization.Int8DynamicActivationIntxWeightConfig(dtype, granularity)
    quantization.quantize_(model, config, filter_fn=lambda module, path: isinstance(module, kind))
    return model


@pytest.mark.parametrize("activations", [False, True])
def test_a_model_that_torchao_quantized_keeps_its_integers(activations: bool) -> None:
    model = lower(
        rounded_by_torchao(4, activations=activations),
        ["xnnpack"],
        context=128,
        chunk=16,
        scheme=None if activations else INT4,
    )
    assert model.quantization is not None and sum(layer.given for layer in model.quantization.quantized) == 22
    wanted = continued(model.module, prompt(), 16, COUNT)
    # An activation in the middle between two integers becomes either, by the order of sums. Where that decides, eager
    # chooses another token after the same text if it got that one by one, and not in chunks.
    begun = prompt()[0].tolist()
    alone = logits_of(model.module, [*begun, *wanted])[len(begun) - 1 : -1].argmax(1).tolist()
    sure = next((place for place, (one, other) in enumerate(zip(alone, wanted, strict=True)) if one != other), COUNT)
    assert sure > COUNT // 2
    for forward in (delegatekit.load(model.program.buffer)["forward"], in_stock(model.program.buffer)):
        assert continued(forward, prompt(), 16, COUNT)[:sure] == wanted[:sure]


@pytest.mark.parametrize("bits", [4, 8])
def test_an_embedding_that_torchao_quantized_is_looked_up_in_its_integers(bits: int) -> None:
    model = rounded_by_torchao(bits, activations=False, kind=torch.nn.Embedding)
    weight = model.model.embed_tokens.weight
    decoder = Decoder(model, 96)
    assert decoder.embedding is not None and decoder.embedding.bits == bits
    tokens = torch.arange(len(weight))
    assert torch.equal(decoder.embedding(tokens), weight.dequantize())
    lowered = lower(model, ["xnnpack"], context=96)
    file = delegatekit.load(lowered.program.buffer)["forward"]
    assert continued(file, prompt(), 32, COUNT) == continued(decoder, prompt(), 32, COUNT)


def test_a_folder_that_torchao_quantized(tmp_path: Path) -> None:
    pytest.importorskip("torchao.quantization")
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerGroup
    from transformers import AutoModelForCausalLM, TorchAoConfig

    build("llama", num_hidden_layers=1).save_pretrained(tmp_path / "float")
    chosen = TorchAoConfig(Int8DynamicActivationIntxWeightConfig(torch.int4, PerGroup(32)))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "float", quantization_config=chosen, dtype=torch.float32)
    model.save_pretrained(tmp_path / "model")
    lowered = lower(tmp_path / "model", ["xnnpack"], context=96, chunk=16)
    assert lowered.told == (f"scheme {INT4} takes the integers: 7 layers are int4 in groups of 32",)
    wanted = continued(lowered.module, prompt(), 16, COUNT)
    assert continued(delegatekit.load(lowered.program.buffer)["forward"], prompt(), 16, COUNT) == wanted


# -- what is refused -------------------------------------------------------------------------------------------------

LAYER = "model.layers.0.mlp.up_proj"


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[Path], None]:
    """Damage that changes a tensor of a layer; None removes it."""

    def damage(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        found = change(tensors.pop(f"{LAYER}.{name}"))
        if found is not None:
            tensors[f"{LAYER}.{name}"] = found
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    return damage


def told(**settings: Any) -> Callable[[Path], None]:
    """Damage that changes config.json's quantization_config."""

    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        config["quantization_config"] |= settings
        (folder / "config.json").write_text(json.dumps(config), "utf-8")

    return damage


def of_another_layer(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.7.mlp.up_proj.qweight"] = tensors[f"{LAYER}.qweight"].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def without_integers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    kept = {name: item for name, item in tensors.items() if not name.endswith("qweight")}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("method", "damage", "said"),
    [
        ("gptq", told(quant_method="aqlm"), "weights are quantized by 'aqlm'"),
        ("gptq", told(checkpoint_format="marlin"), "in the layout 'marlin' of GPTQ"),
        ("awq", told(version="gemv"), "of 4 bits in the layout 'gemv' of AWQ"),
        ("compressed-tensors", told(format="float-quantized"), "int of 4 bits in the format 'float-quantized'"),
        ("gptq", changed("scales", lambda item: None), f"{LAYER}: has no scales"),
        ("gptq", changed("qzeros", lambda item: None), f"{LAYER}: has no qzeros"),
        ("gptq", changed("scales", lambda item: item.int()), "scales is I32 "),
        ("gptq", changed("scales", lambda item: item * float("nan")), "has scales that are no numbers"),
        ("gptq", changed("qweight", lambda item: item[:3].clone()), "has 3 words for 64 integers"),
        ("gptq", changed("qweight", lambda item: item[:, :7].clone()), r"qweight is I32 \[8, 7\], not I32 \[8, 96\]"),
        ("gptq", changed("g_idx", lambda item: item + 1), "puts inputs into the groups 1 to 2, and has scales of 2"),
        ("gptq", changed("g_idx", lambda item: item - 1), "puts inputs into the groups -1 to 0, and has scales of 2"),
        ("gptq", of_another_layer, "has packed weights of model.layers.7.mlp.up_proj, which is not a linear layer"),
        ("gptq", without_integers, "has no qweight, which GPTQ has for each layer"),
        ("awq", changed("qzeros", lambda item: item.t().contiguous()), r"qzeros is I32 \[12, 2\], not I32 \[2, 12\]"),
        ("compressed-tensors", changed("weight_scale", lambda item: item[:, :1].clone()[:5]), "weight_scale is F16"),
        ("compressed-tensors", changed("weight_scale", lambda item: None), "has no weight_scale"),
    ],
)
def test_damaged_folders_are_refused(method: str, damage: Any, said: str, tmp_path: Path) -> None:
    packers.save(tmp_path, method, **ONE_LAYER)
    damage(tmp_path)
    with pytest.raises(DelegateKitError, match=said) as caught:
        lower(tmp_path, ["reference"], context=32)
    assert str(tmp_path) in str(caught.value) and caught.value.hint


def test_the_packers_know_each_format() -> None:
    from delegatekit_llm.checkpoints.formats import FORMATS

    assert set(PACKERS) == set(FORMATS)
