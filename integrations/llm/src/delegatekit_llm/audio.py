"""Recordings as spectrograms: what the encoder of a model that hears takes."""

from __future__ import annotations

import wave
from array import array
from pathlib import Path
from typing import Any, Final

import torch

from delegatekit.errors.misuse import MissingFileError, WrongArgumentError
from delegatekit_api import FormatError

#: How a model's spectrograms are made: what `save_pretrained` of its processor writes, or wrote in former versions.
PREPROCESSORS: Final = ("processor_config.json", "preprocessor_config.json")


def spectrogram(recording: Path, folder: Path) -> torch.Tensor:
    """The spectrogram of a .wav of 16 bits, (1, bands, frames), of the length that the model takes.

    `folder` has one of `PREPROCESSORS`. Several channels are averaged. What is longer than the model takes is left out.
    Raises MissingFileError and FormatError for files that cannot be read, WrongArgumentError for a rate that the model
    does not take.
    """
    import transformers

    loader: Any = transformers.AutoFeatureExtractor
    if not any((folder / name).is_file() for name in PREPROCESSORS):
        raise MissingFileError(
            f"has no {' or '.join(PREPROCESSORS)}",
            where=str(folder),
            hint="copy it from the model's folder: it says how sound becomes a spectrogram",
        )
    samples, rate = _samples(recording)
    try:
        extractor = loader.from_pretrained(folder, local_files_only=True)
        wanted = int(extractor.sampling_rate)
    except Exception as error:
        raise FormatError(f"cannot be read: {type(error).__name__}: {error}", where=str(folder)) from error
    if rate != wanted:
        raise WrongArgumentError(
            f"has {rate} samples a second, and the model takes {wanted}",
            where=str(recording),
            hint=f"ffmpeg -i {recording.name} -ar {wanted} -ac 1 new.wav",
        )
    found: torch.Tensor = extractor(samples.numpy(), sampling_rate=rate, return_tensors="pt").input_features
    return found


def _samples(recording: Path) -> tuple[torch.Tensor, int]:
    """The samples of a .wav, from -1 to 1, and how many are a second."""
    if not recording.is_file():
        raise MissingFileError("there is no recording", where=str(recording), hint="a .wav file is the prompt")
    try:
        with wave.open(str(recording)) as opened:
            width, channels, rate = opened.getsampwidth(), opened.getnchannels(), opened.getframerate()
            data = opened.readframes(opened.getnframes())
    except (wave.Error, EOFError) as error:
        raise FormatError(
            f"is no .wav that is read: {str(error) or 'it ends too early'}", where=str(recording)
        ) from error
    if width != 2:  # bytes
        raise FormatError(
            f"has {8 * width} bits a sample", where=str(recording), hint="16 are read: ffmpeg writes them"
        )
    numbers = torch.tensor(array("h", data), dtype=torch.float32).view(-1, channels)
    return numbers.mean(1) / (1 << 15), rate
