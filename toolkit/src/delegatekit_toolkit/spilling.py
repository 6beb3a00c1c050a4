"""Tensors on temporary files: what a compiler must have at hand all at once, and memory may not hold.

The system takes the pages of such a file back when memory is short. A file has no name any more once it is mapped, and
ends with the last tensor on it, also if the process is killed.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delegatekit_api import LoweringError

from .scratch import scratch

if TYPE_CHECKING:
    import torch

#: Fewer bytes stay in memory: a file takes a part of a millisecond.
_LEAST: Final = 1 << 18
#: Systems that remove a file while it is mapped.
_REMOVES: Final = os.name == "posix"


def spilled(data: torch.Tensor) -> torch.Tensor:
    """The same elements on a temporary file, contiguous; the tensor itself if it is on one, or has less than 256 KiB.

    Raises LoweringError if the folder of temporary files (`TMPDIR`) has no room.

    >>> import torch
    >>> found = spilled(torch.ones(1 << 20, dtype=torch.int8))
    >>> is_spilled(found), bool((found == 1).all())
    (True, True)
    """
    from .content import elements  # with torch

    if data.nbytes < _LEAST or is_spilled(data) or not _REMOVES:
        return data
    with scratch() as folder:
        file = folder / "data"
        try:
            file.write_bytes(elements(data).numpy().data)
        except OSError as error:
            raise LoweringError(
                f"{data.nbytes} bytes of a constant cannot be written: {error.strerror}",
                where=f"temporary files in {tempfile.gettempdir()}",
                hint="set the environment variable TMPDIR to a folder with room for all weights, twice",
            ) from error
        return mapped(file, data.nbytes).view(data.dtype).reshape(data.shape)


def spilled_like(source: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """What was made of a tensor, on a file if that is on one. Raises LoweringError as `spilled`."""
    return spilled(data) if is_spilled(source) else data


def mapped(file: Path, nbytes: int) -> torch.Tensor:
    """The first bytes of a file, which may be removed then. They must not be written to.

    On systems that do not remove a file while it is mapped they are read.
    """
    import numpy as np
    import torch

    if not _REMOVES:
        return torch.from_numpy(np.fromfile(file, np.uint8, nbytes))
    return torch.from_file(str(file), shared=True, size=nbytes, dtype=torch.uint8)


def is_spilled(data: torch.Tensor) -> bool:
    """True if the elements are on a file: they take no memory that is needed for others."""
    return data.untyped_storage().filename is not None
