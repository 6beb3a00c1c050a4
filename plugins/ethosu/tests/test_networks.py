"""Real networks, from training to the compiled program on the host: each layer's integers, accuracy, all four U55s."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from network_case import Case
from torch import nn

import delegatekit
from delegatekit.quantization.ratio import sqnr_db
from delegatekit_conformance.cases.quantized import InDouble, output_scales

pytest.importorskip("tosa_reference_model", reason="tosa-tools is not installed")
pytest.importorskip("ethosu.regor", reason="ethos-u-vela is not installed")

_spec = importlib.util.spec_from_file_location(
    "ethosu_networks", Path(__file__).parent.joinpath("operators", "networks.py")
)
assert _spec is not None and _spec.loader is not None
networks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(networks)

U55 = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256")
#: Its steps are rounded individually.
_ROUNDED_TWICE = "softmax"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def quantized(module: nn.Module, *samples: torch.Tensor) -> Any:
    """The module quantized; the test fails if any part stays in float."""
    found = delegatekit.quantize(module.eval(), [(sample,) for sample in samples], backend="ethosu", progress=False)
    assert not found.quantization.kept, str(found.quantization)
    return found


def check_layers(case: Case, example: torch.Tensor) -> None:
    """Each layer computes eager's double-precision results on the same integers, up to a step in a few places.

    These are sums that end, to all digits of a float32, half-way between two integers.
    """
    layers = case.layers(example)
    assert layers
    for layer in layers:
        assert layer.steps <= 1, layer
        if not layer.name.startswith(_ROUNDED_TWICE):
            assert layer.differing <= max(2, layer.count // 10_000), layer


def check_bits(case: Case, example: torch.Tensor) -> None:
    """The compiled program in the file computes the results of the TOSA program in Arm's reference model."""
    results, references = case.by_command_stream(example), case.by_reference(example)
    for result, expected in zip(results, references, strict=True):
        np.testing.assert_array_equal(result.reshape(expected.shape), expected)


def with_statistics(module: nn.Module, *examples: torch.Tensor) -> nn.Module:
    """Batch norms get the statistics of these examples: with random weights alone, activations vanish or explode."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    with torch.no_grad():
        for example in examples:
            module.train()(example)
    return module.eval()


# -- digits ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A network trained on two thirds of scikit-learn's digits and quantized with them; the other third, and labels."""
    datasets = pytest.importorskip("sklearn.datasets")
    data = datasets.load_digits()
    images = torch.from_numpy(data.images).float().div(16).unsqueeze(1)
    labels = torch.from_numpy(data.target).long()
    known = 2 * len(images) // 3
    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, epochs = networks.Digits(), 12
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for chosen in torch.randperm(known).split(64):
            optimizer.zero_grad()
            loss: Any = nn.functional.nll_loss(module(images[chosen]).clamp_min(1e-7).log(), labels[chosen])
            loss.backward()
            optimizer.step()
        schedule.step()
    return quantized(module, *images[:64].split(1)), images[known:], labels[known:]


@pytest.mark.parametrize("target", U55)
def test_the_digits_are_the_same_on_every_ethos_u55(digits: Any, target: str) -> None:
    module, images, _ = digits
    case = Case(module, images[:1], target)
    assert (case.delegates, case.fallback()) == (1, [])
    for image in images[:8].split(1):
        check_bits(case, image)


def test_the_digits_are_read_by_the_compiled_program(digits: Any) -> None:
    module, images, labels = digits
    case = Case(module, images[:1])
    program = delegatekit.load(case.buffer)
    results = torch.cat([program["forward"].run((image,))[0].clone() for image in images.split(1)])
    program.close()
    expected = torch.cat([module(image) for image in images.split(1)])
    assert sqnr_db(results, expected) > 30
    # Training ends a little differently on each processor: the network reads well, and the program as well as it.
    assert (expected.argmax(1) == labels).float().mean() > 0.9
    # Two classes may have the same probability: of 599 digits, no more than two are classified differently from eager.
    assert int((results.argmax(1) != expected.argmax(1)).sum()) <= 2


def test_each_layer_of_the_digits_is_right(digits: Any) -> None:
    module, images, _ = digits
    case = Case(module, images[:1])
    for image in images[:8].split(1):
        check_layers(case, image)


# -- others with random weights ----------------------------------------------------------------------------------------


def keyword_spotting() -> nn.Module:
    """DS-CNN, its small form: one convolution over 49 frames of 10 coefficients, four depthwise separable ones."""
    layers: list[nn.Module] = [nn.Conv2d(1, 64, (10, 4), 2, (5, 1)), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(4):
        for size, groups in ((3, 64), (1, 1)):
            convolution = nn.Conv2d(64, 64, size, padding=size // 2, groups=groups, bias=False)
            layers += [convolution, nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(-1))


NETWORKS = {
    "keyword spotting": (keyword_spotting, (1, 1, 49, 10)),
    "U-Net": (networks.Segmentation, (1, 3, 48, 64)),
    "perceptron": (networks.perceptron, (4, 40)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_small_network_is_one_delegate_whose_layers_are_right(name: str) -> None:
    make, shape = NETWORKS[name]
    module = with_statistics(make(), torch.randn(16, *shape[1:]))
    example, *samples = (torch.randn(shape) for _ in range(9))
    module = quantized(module, *samples)
    case = Case(module, example)
    assert (case.delegates, case.fallback()) == (1, [])
    check_layers(case, example)
    (result,) = delegatekit.load(case.buffer)["forward"].run((example,))
    assert sqnr_db(result, module(example)) > 30
    for target in U55:
        check_bits(Case(module, example, target), example)


def mobilenet_v2(size: int) -> nn.Module:
    """With 1000 classes and random weights; batch norms have statistics of images of `size` pixels."""
    transformers = pytest.importorskip("transformers")
    from delegatekit_conformance.models import OneOutput

    configuration = transformers.MobileNetV2Config(num_labels=1000)
    module = OneOutput(transformers.MobileNetV2ForImageClassification(configuration), "logits")
    return with_statistics(module, torch.randn(8, 3, size, size))


@pytest.mark.slow
def test_mobilenet_v2_of_96_pixels_is_one_delegate_on_every_ethos_u55() -> None:
    module = mobilenet_v2(96)
    example, *samples = (torch.randn(1, 3, 96, 96) for _ in range(3))
    module = quantized(module, *samples)
    for target in U55:
        case = Case(module, example, target)
        assert (case.delegates, case.fallback()) == (1, [])
        check_bits(case, example)
    check_layers(case, example)


# -- large ones --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_layer_of_mobilenet_v2_is_right() -> None:
    module = mobilenet_v2(224)
    example, *samples = (torch.randn(1, 3, 224, 224) for _ in range(3))
    case = Case(quantized(module, *samples), example)
    assert (case.delegates, case.fallback()) == (1, [])
    check_layers(case, example)
    check_bits(case, example)


def views(name: str) -> list[torch.Tensor]:
    """A photo packaged with scikit-image or scikit-learn, as EfficientNet's input: whole, and its center."""
    skimage = pytest.importorskip("skimage")
    datasets = pytest.importorskip("sklearn.datasets")
    from delegatekit_conformance.models import photo_batch

    image = datasets.load_sample_image(name) if name.endswith(".jpg") else getattr(skimage.data, name)()
    side = min(image.shape[:2])
    top, left = ((size - side) // 2 for size in image.shape[:2])
    return [photo_batch(image), photo_batch(image[top : top + side, left : left + side])]


#: Photos of objects. Their mirror images calibrate.
PHOTOS = ("chelsea", "coffee", "china.jpg", "rocket", "flower.jpg")


@pytest.mark.slow
def test_efficientnet_lite0_sees_what_it_sees_in_eager() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    from delegatekit_conformance.models import build_model

    photos = [view for name in PHOTOS for view in views(name)]
    float_module = build_model("efficientnet-lite0").module
    module = quantized(float_module, *(photo.flip(-1).contiguous() for photo in photos))
    case = Case(module, photos[0])
    assert (case.delegates, case.fallback()) == (1, [])
    check_layers(case, photos[0])
    check_bits(case, photos[0])
    program, results, expected, precise = delegatekit.load(case.buffer), [], [], []
    for photo in photos:
        results.append(program["forward"].run((photo,))[0].clone())
        expected.append(module(photo))
        precise.append(InDouble(module).run(photo))
    program.close()
    # If the best two differ by more than rounding, the same one is the best.
    (step,) = output_scales(case.exported)
    assert step is not None
    leads = [-float(value.topk(2).values.diff()) / step for value in expected]
    sure = [place for place, lead in enumerate(leads) if lead > 4.5]
    assert len(sure) >= 5, leads
    best = [[int(outputs[place].argmax()) for place in sure] for outputs in (results, expected)]
    assert best[0] == best[1] == [int(float_module(photos[place]).argmax()) for place in sure]
    # Eager in double precision differs as much from eager: over so many layers rounding differences add up.
    reached, limit = (sqnr_db(torch.cat(found), torch.cat(expected)) for found in (results, precise))
    assert reached > min(30, limit - 1), (reached, limit)
