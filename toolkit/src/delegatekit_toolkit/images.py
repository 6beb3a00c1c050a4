"""Images as inputs of vision models."""

from __future__ import annotations

from pathlib import Path

import torch

from delegatekit_api import DelegateKitError, TensorSpec

__all__ = ["read_image"]


def read_image(path: Path, spec: TensorSpec | None) -> torch.Tensor:
    """An image as (1, 3, H, W) float32, resized, with the ImageNet mean and standard deviation taken out."""
    if spec is None or len(spec.shape) != 4 or spec.shape[1] != 3:
        raise DelegateKitError("an image fits only an input of shape [1, 3, H, W]", where=str(path))
    try:
        import numpy
        from PIL import Image

        with Image.open(path) as image:
            pixels = numpy.asarray(image.convert("RGB").resize((spec.shape[3], spec.shape[2])), dtype="float32") / 255.0
    except ImportError as error:
        raise DelegateKitError("images need Pillow", hint="pip install pillow") from error
    except Exception as error:  # Pillow raises what its decoders raise
        raise DelegateKitError(
            f"is not an image: {error}", where=str(path), hint="inputs are .npy, .pt or images"
        ) from error
    normal = (torch.from_numpy(pixels) - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor([0.229, 0.224, 0.225])
    return normal.permute(2, 0, 1).unsqueeze(0).contiguous()
