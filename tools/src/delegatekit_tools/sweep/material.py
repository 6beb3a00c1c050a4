"""The data of a sweep's processes: programs, samples and jobs, as files of a folder."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram

from delegatekit.errors import as_ours
from delegatekit.quantization import load_quantized_methods, save_methods
from delegatekit_api import LoweringError

from .trial import Arguments

_HINT: Final = (
    "a sweep hands it to other processes as torch.export.save writes it: return tuples, lists or dicts of tensors"
)

_PROGRAMS: Final = "programs.pt2"
_SAMPLES: Final = "samples.pt"
_CALIBRATION: Final = "calibration.pt"


@dataclass(frozen=True)
class Material:
    """Programs by method name, the arguments of their calls, and inputs to calibrate with."""

    programs: Mapping[str, ExportedProgram]
    samples: Mapping[str, Sequence[Arguments]]
    calibration: Sequence[tuple[Any, ...]]

    def files(self) -> dict[str, bytes]:
        """The contents of the files, by name. Raises LoweringError for programs that PyTorch cannot write."""
        found = {
            _SAMPLES: _packed({name: list(items) for name, items in self.samples.items()}),
            _CALIBRATION: _packed(list(self.calibration)),
        }
        with as_ours(lambda fault: LoweringError(f"PyTorch cannot write the program: {fault}", hint=_HINT)):
            buffer = io.BytesIO()
            save_methods(self.programs, buffer)
            found[_PROGRAMS] = buffer.getvalue()
        return found

    @classmethod
    def read(cls, folder: Path) -> Material:
        """The contents of such a folder."""
        programs = load_quantized_methods(folder / _PROGRAMS, trust=True)
        assert isinstance(programs, dict)
        return cls(
            programs,
            torch.load(folder / _SAMPLES, weights_only=True),
            torch.load(folder / _CALIBRATION, weights_only=True),
        )


def write(files: Mapping[str, bytes], folder: Path) -> None:
    """Put the files into a folder."""
    for name, content in files.items():
        (folder / name).write_bytes(content)


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
