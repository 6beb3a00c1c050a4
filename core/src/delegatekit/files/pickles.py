"""Reads tensors that were pickled (`torch.save`): without running code, unless the caller trusts the file."""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any, BinaryIO, Final

from delegatekit_api import FormatError

from .sources import open_file

#: The remedy for a file that could run code.
TRUST_HINT: Final = "if you know where the file comes from: --trust, in Python trust=True"
#: PyTorch's wording for an object that it does not load with `weights_only`.
_FORBIDDEN = re.compile(r"(?:GLOBAL|unrecognized function|Unsupported class|but got) ([\w.]+)")


class UntrustedError(FormatError):
    """A file contains an object that can run any code while it is loaded, and the caller did not trust it."""

    def __init__(self, what: str, *, where: str) -> None:
        super().__init__(f"has {what}, which can run any code while it is loaded", where=where, hint=TRUST_HINT)


def read_pickled(path: Path, *, trust: bool = False) -> Any:
    """The content of a `torch.save` file: tensors, numbers, strings and containers of these; with `trust` anything.

    Raises UntrustedError if it has other objects, FormatError if it cannot be read.
    """
    with open_file(path) as file:
        return load_pickled(file, str(path), trust=trust)


def load_pickled(file: BinaryIO | bytes, where: str, *, trust: bool = False) -> Any:
    """The same for an open file or its bytes; `where` names it in errors."""
    import torch

    try:
        return torch.load(io.BytesIO(file) if isinstance(file, bytes) else file, weights_only=not trust)
    except pickle.UnpicklingError as error:
        if forbidden := _FORBIDDEN.search(str(error)):
            raise UntrustedError(f"a pickled object ({forbidden[1]})", where=where) from error
        what = "cannot be read: it is damaged, or pickled in a way that PyTorch cannot check"
        raise FormatError(what, where=where, hint=None if trust else TRUST_HINT) from error
    except Exception as error:  # PyTorch raises RuntimeError, EOFError, KeyError, UnicodeDecodeError, ...
        if not trust and "TorchScript" in str(error):
            raise UntrustedError("a TorchScript program", where=where) from error
        raise FormatError(f"cannot be read: {_first_line(error)}", where=where) from error


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text if text else type(error).__name__
