"""coremltools, imported on the first lowering: it takes seconds, and warns about every untested library version."""

from __future__ import annotations

import importlib
import logging
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from delegatekit_api import LoweringError
from delegatekit_toolkit.capture import quiet


@dataclass(frozen=True)
class Tools:
    """The used parts of coremltools."""

    #: The package.
    coremltools: Any
    #: Writes operations into the current function.
    builder: Any
    program: Any
    types: Any


@cache
def tools() -> Tools:
    """The library. Raises LoweringError if it is missing."""
    loggers = {logging.getLogger(name) for name in ("coremltools", "torchao", "torch.utils._pytree")}
    levels = {logger: logger.level for logger in loggers}
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            coremltools = importlib.import_module("coremltools")
            mil = importlib.import_module("coremltools.converters.mil.mil")
            program = importlib.import_module("coremltools.converters.mil.mil.program")
        except ImportError as error:
            raise LoweringError(
                f"coremltools cannot be imported: {error}", where="Core ML", hint="pip install coremltools"
            ) from error
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)
    return Tools(coremltools, mil.Builder, program, mil.types)


def clusters(values: np.ndarray[Any, Any], counts: np.ndarray[Any, Any], entries: int) -> np.ndarray[Any, Any]:
    """The centers of the best clusters of weighted numbers: one-dimensional k-means, which has an exact solution.

    Raises LoweringError if coremltools lacks the function.
    """
    tools()
    try:
        library = importlib.import_module("coremltools._deps.kmeans1d")
    except ImportError as error:
        raise LoweringError(
            f"this coremltools has no k-means: {error}", where="Core ML", hint="pip install coremltools==9.0"
        ) from error
    found = library.cluster(values.astype(np.float64), entries, weights=counts.astype(np.float64))
    return np.asarray(found.centroids, dtype=np.float64)
