"""The data of a sweep's processes: programs, samples and jobs, as files of a folder."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.export import ExportedProgram

from delegatekit.errors import as_ours
from delegatekit.quantization import load_quantized
from delegatekit_api import LoweringError
from delegatekit_toolkit.json_text import to_json

from .trial import Arguments

_HINT: Final = (
    "a sweep hands it to other processes as torch.export.save writes it: return tuples, lists or dicts of tensors"
)

_NAMES: Final = "methods.json"
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
            _NAMES: to_json(list(self.programs)).encode(),
            _SAMPLES: _packed({name: list(items) for name, items in self.samples.items()}),
            _CALIBRATION: _packed(list(self.calibration)),
        }
        with as_ours(lambda fault: LoweringError(f"PyTorch cannot write the program: {fault}", hint=_HINT)):
            for number, program in enumerate(self.programs.values()):
                buffer = io.BytesIO()
                torch.export.save(program, buffer)
                found[f"{number}.pt2"] = buffer.getvalue()
        return found

    @classmethod
    def read(cls, folder: Path) -> Material:
        """The contents of such a folder."""
        names = json.loads((folder / _NAMES).read_text("utf-8"))
        return cls(
            {name: load_quantized(folder / f"{number}.pt2", trust=True) for number, name in enumerate(names)},
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
