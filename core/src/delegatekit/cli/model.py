"""The MODEL argument: a .pt2 file, or a function that makes a model."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from .console import usage


def read_model(text: str, *, trust: bool = False) -> dict[str, Any]:
    """The first arguments of `lower` for a MODEL argument: model, and inputs and kwargs for a module.

    A .pt2 file that can run code while it is loaded is refused unless `trust` is given.
    """
    if text.endswith(".pt2"):
        return {"model": load_exported(Path(text), trust=trust)}
    if not re.fullmatch(r"[\w.]+:[\w.]+", text):
        usage(f"MODEL {text!r} is neither a .pt2 file nor package.module:callable")
    module_name, _, attribute = text.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        function: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            function = getattr(function, part)
    except (ImportError, AttributeError) as error:
        usage(f"MODEL {text!r} cannot be imported: {error}")
    from torch.export import ExportedProgram

    result = function if isinstance(function, ExportedProgram) or not callable(function) else function()
    if isinstance(result, ExportedProgram | dict):
        return {"model": result}
    if isinstance(result, tuple) and len(result) in (2, 3, 4):
        return dict(zip(("model", "inputs", "kwargs", "dynamic_shapes"), result, strict=False))
    return usage(
        f"{text} gave a {type(result).__name__}, not (module, inputs[, kwargs[, dynamic_shapes]]), an ExportedProgram "
        "or a dict of ExportedPrograms by method name"
    )


def load_exported(path: Path, *, trust: bool = False) -> Any:
    """The program of a .pt2 file, with the operators that it may need known."""
    from ..edge import precompiled  # noqa: F401  (programs may call its operator)
    from ..quantization.commands import load_quantized

    if not path.exists():
        usage(f"{path} does not exist")
    return load_quantized(path, trust=trust)
