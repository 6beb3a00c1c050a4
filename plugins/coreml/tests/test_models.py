"""Whole networks: one delegate each, run by our interpreter, compared with eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_conformance.models import build_model, photo_batch
from delegatekit_toolkit.accuracy import ROUNDOFF
from delegatekit_toolkit.testing import signal_to_noise

SMALL = ("mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m", "whisper-tiny encoder", "u-net")
WHOLE = (*SMALL, "efficientnet-lite0", "minilm")


def error_of(name: str, *, small: bool, precision: str) -> float:
    """The largest difference from eager, relative to the largest number; all of it is in one delegate."""
    case = build_model(name, small=small)
    program = delegatekit.lower(case.export(), backends=["coreml"], options={"coreml": {"precision": precision}})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
    with torch.no_grad():
        wanted = case.module(*case.inputs)
    got = delegatekit.load(program.buffer)["forward"](*case.inputs)
    assert got.shape == wanted.shape
    return float((got - wanted).abs().max() / wanted.abs().max())


#: There is no formula for whole networks: sums of thousands of products follow one another, and norms in between reduce
#: errors. The tolerance is 168 roundings of float32 (2^-24 each), and 40 of float16 (2^-11), in up to 50 layers.
SINGLE, HALF = 1e-5, 40 * ROUNDOFF["float16"]


@pytest.mark.parametrize("name", SMALL)
def test_small_networks(name: str) -> None:
    pytest.importorskip("transformers")
    assert error_of(name, small=True, precision="float32") <= SINGLE


@pytest.mark.parametrize("name", SMALL)
def test_small_networks_in_half_precision(name: str) -> None:
    pytest.importorskip("transformers")
    assert error_of(name, small=True, precision="float16") <= HALF


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_networks(name: str) -> None:
    pytest.importorskip("transformers")
    assert error_of(name, small=False, precision="float32") <= SINGLE


@pytest.mark.slow
def test_networks_in_half_precision() -> None:
    pytest.importorskip("transformers")
    for name in ("resnet-50", "vit-base", "efficientnet-lite0", "minilm"):
        assert error_of(name, small=False, precision="float16") <= HALF, name


#: Weight storage -> scheme, options, the minimum signal-to-noise ratio in dB over the photos, and the number of photos
#: that get the same class.
STORED: dict[str, tuple[str | None, dict[str, Any], float, int]] = {
    "int8": ("int8", {}, 14, 2),
    "int8 weights": ("int8-weight-only", {}, 18, 4),
    "int4 weights of linear layers": ("int4-weight-only", {}, 15, 4),
    "8-bit tables": (None, {"palettize": 8}, 26, 4),
    "6-bit tables": (None, {"palettize": 6}, 15, 4),
    # Depthwise convolutions do not tolerate so few distinct values without training.
    "4-bit tables": (None, {"palettize": 4}, 1.5, 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORED)
def test_a_pretrained_network_sees_in_photos_what_eager_sees(name: str) -> None:
    data = pytest.importorskip("skimage.data")
    pytest.importorskip("efficientnet_lite_pytorch")
    scheme, options, least, same = STORED[name]
    options = {"target": "ios18", **options}
    module = model = build_model("efficientnet-lite0").module
    if scheme is not None:
        pictures = [
            (photo_batch(getattr(data, item)()),) for item in ("retina", "hubble_deep_field", "immunohistochemistry")
        ]
        module = delegatekit.quantize(model, pictures, backend="coreml", scheme=scheme, options=options)
    photos = [photo_batch(getattr(data, item)()) for item in ("chelsea", "coffee", "rocket", "astronaut")]
    program = delegatekit.lower(module, (photos[0],), backends=["coreml"], options={"coreml": options})
    (method,) = delegatekit.report(program).methods
    assert len(method.delegates) == 1 and not method.fallback, str(delegatekit.report(program))
    classify = delegatekit.load(program.buffer)["forward"]
    with torch.no_grad():
        pairs = [(classify(photo), model(photo)) for photo in photos]
    got, wanted = (torch.cat(items) for items in zip(*pairs, strict=True))
    found = int((got.argmax(1) == wanted.argmax(1)).sum())
    assert signal_to_noise(got, wanted) >= least and found >= same, (signal_to_noise(got, wanted), found)
