"""The MODEL argument: a .pt2 file, or a function that makes a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..pipeline import Source
from ..plugins.answers import named
from .console import usage
from .imported import attribute_of, call_users, is_package, module_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_HINT: Final = "give FILE.pt2, package.module:callable or path/file.py:callable"


def read_model(text: str, *, trust: bool = False) -> Source:
    """The model of a MODEL argument, with example inputs for a module.

    A .pt2 file that can run code while it is loaded is refused unless `trust` is given.
    """
    check_model(text)
    if text.endswith(".pt2"):
        return Source(load_exported(Path(text), trust=trust))
    source, _, attribute = text.rpartition(":")
    from torch.export import ExportedProgram

    what = f"MODEL {text}"
    given = attribute_of(what, module_of(what, source), attribute)
    is_program = isinstance(given, ExportedProgram) or not callable(given)
    result = given if is_program else call_users(what, given)
    if isinstance(result, ExportedProgram | dict):
        return Source(result)
    if isinstance(result, tuple) and len(result) in (2, 3, 4):
        return Source(*result[:2], **dict(zip(("kwargs", "dynamic_shapes"), result[2:], strict=False)))
    return usage(
        f"MODEL {text}: {attribute} {'is' if is_program else 'returned'} {_kind(result)}",
        "a MODEL is (module, inputs[, kwargs[, dynamic_shapes]]), an ExportedProgram or a dict of ExportedPrograms by "
        "method name, or a function that takes no arguments and returns one of these",
    )


def check_model(text: str) -> None:
    """End the command for a MODEL argument of no known form, or of a file or package that is not there.

    This reads and imports nothing: neither the user's modules nor torch.
    """
    if text.endswith(".pt2"):
        return None if Path(text).exists() else usage(f"{text} does not exist")
    source, _, attribute = text.rpartition(":")
    is_file = source.endswith(".py")
    if not source or not re.fullmatch(r"[\w.]+", attribute) or not (is_file or re.fullmatch(r"\w+(\.\w+)*", source)):
        _explain_form(text)
    if is_file and not Path(source).is_file():
        usage(f"MODEL {text}: {source} does not exist")
    if not is_file and not is_package(top := source.partition(".")[0]):
        usage(f"MODEL {text} cannot be imported: No module named {top!r}")
    return None


def files_of(text: str) -> list[Path]:
    """The files that a MODEL argument may be read from; those of a module are where the current folder has it."""
    source, colon, _ = text.rpartition(":")
    module = Path(*source.split("."))
    if not colon or source.endswith(".py") or not module.name:
        return [Path(source or text)]
    return [module.with_name(f"{module.name}.py"), module / "__init__.py"]


def load_exported(path: Path, *, trust: bool = False) -> ExportedProgram | dict[str, ExportedProgram]:
    """The program of a .pt2 file, or its programs by method, with the operators that they may need known."""
    from ..edge import precompiled  # noqa: F401  (programs may call its operator)
    from ..quantization.commands import load_quantized_methods

    return load_quantized_methods(path, trust=trust)


def _explain_form(text: str) -> None:
    """End the command: the MODEL argument is of no form that is known."""
    path = Path(text)
    if path.suffix == ".py":
        usage(f"MODEL {text!r} does not say which function makes the model", f"give {text}:FUNCTION")
    if path.suffix in (".pte", ".ptd"):
        usage(f"MODEL {text!r} is lowered already", f"`delegatekit inspect {text}` shows what is in it")
    if path.suffix in (".pt", ".pth", ".onnx", ".safetensors"):
        usage(
            f"MODEL {text!r} is neither a .pt2 file nor package.module:callable",
            "a program is needed, not weights alone: torch.export.save writes a .pt2 file",
        )
    if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not path.exists():
        hint = (
            "a model of a hub needs a function that loads it and returns (module, inputs): give path/file.py:FUNCTION"
        )
        usage(f"there is no model {text!r}: it is neither a .pt2 file nor package.module:callable", hint)
    usage(f"MODEL {text!r} is neither a .pt2 file nor package.module:callable", _HINT)


def _kind(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else named(type(value))
