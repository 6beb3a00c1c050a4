"""Dtypes by torch's names, as in `TensorSpec` and blobs: "float32"."""

from __future__ import annotations

import torch

from delegatekit_api import FormatError


def dtype_name(dtype: torch.dtype) -> str:
    """torch's name of a dtype.

    >>> dtype_name(torch.float32), dtype_name(torch.bool)
    ('float32', 'bool')
    """
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str, where: str = "dtype") -> torch.dtype:
    """The dtype of a name; safe for names that come from a file.

    Raises FormatError, with `where`, for any other name.

    >>> dtype_of("int8")
    torch.int8
    >>> dtype_of("load")
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: dtype: 'load' is not a dtype
    """
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise FormatError(f"{name!r:.40} is not a dtype", where=where)
    return found


def item_size(name: str, where: str = "dtype") -> int:
    """Bytes of one element. Raises FormatError, with `where`, for a name that is not a dtype.

    >>> item_size("bfloat16")
    2
    """
    return dtype_of(name, where).itemsize
