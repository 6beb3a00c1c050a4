"""The MODEL argument: a .pt2 file, or a function that makes a model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from delegatekit_api import DelegateKitError

from .console import usage

_Result = TypeVar("_Result")
_HINT: Final = "give FILE.pt2, package.module:callable or path/file.py:callable"


def read_model(text: str, *, trust: bool = False) -> dict[str, Any]:
    """The first arguments of `lower` for a MODEL argument: model, and inputs and kwargs for a module.

    A .pt2 file that can run code while it is loaded is refused unless `trust` is given.
    """
    if text.endswith(".pt2"):
        return {"model": load_exported(Path(text), trust=trust)}
    source, _, attribute = text.rpartition(":")
    if not source or not re.fullmatch(r"[\w.]+", attribute):
        _explain_form(text)
    from torch.export import ExportedProgram

    given = _attribute(text, _module(text, source), attribute)
    is_program = isinstance(given, ExportedProgram) or not callable(given)
    result = given if is_program else _call(text, given)
    if isinstance(result, ExportedProgram | dict):
        return {"model": result}
    if isinstance(result, tuple) and len(result) in (2, 3, 4):
        return dict(zip(("model", "inputs", "kwargs", "dynamic_shapes"), result, strict=False))
    return usage(
        f"MODEL {text}: {attribute} {'is' if is_program else 'returned'} {_kind(result)}",
        "a MODEL is (module, inputs[, kwargs[, dynamic_shapes]]), an ExportedProgram or a dict of ExportedPrograms by "
        "method name, or a function that takes no arguments and returns one of these",
    )


def files_of(text: str) -> list[Path]:
    """The files that a MODEL argument may be read from; those of a module are where the current folder has it."""
    source, colon, _ = text.rpartition(":")
    if not colon or source.endswith(".py"):
        return [Path(source or text)]
    module = Path(*source.split("."))
    return [module.with_name(f"{module.name}.py"), module / "__init__.py"]


def load_exported(path: Path, *, trust: bool = False) -> Any:
    """The program of a .pt2 file, with the operators that it may need known."""
    from ..edge import precompiled  # noqa: F401  (programs may call its operator)
    from ..quantization.commands import load_quantized

    if not path.exists():
        usage(f"{path} does not exist")
    return load_quantized(path, trust=trust)


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
    usage(f"MODEL {text!r} is neither a .pt2 file nor package.module:callable", _HINT)


def _module(text: str, source: str) -> ModuleType:
    """The module that a MODEL argument names: by its dotted name, or by the path of its file."""
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            usage(f"MODEL {text!r}: {path} does not exist")
        sys.path.insert(0, str(path.parent.resolve()))
        return _run(text, lambda: _module_of_file(path))
    if not re.fullmatch(r"\w+(\.\w+)*", source):
        _explain_form(text)
    sys.path.insert(0, str(Path.cwd()))
    return _run(text, lambda: importlib.import_module(source))


def _module_of_file(path: Path) -> ModuleType:
    """The module of a file, as `import` would make it; one of the same name that is loaded already stays."""
    name = path.stem if path.stem not in sys.modules else f"_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module


def _attribute(text: str, module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            functions = [name for name, value in vars(module).items() if _makes_models(module, value)]
            hint = f"functions that it could be: {', '.join(functions)}" if functions else None
            usage(f"MODEL {text!r} cannot be imported: {module.__name__} has no {attribute!r}", hint)
    return found


def _makes_models(module: ModuleType, value: Any) -> bool:
    """Whether it is a function of the module's own that needs no arguments."""
    code = getattr(value, "__code__", None)
    defaults = getattr(value, "__defaults__", None) or ()
    return getattr(value, "__module__", "") == module.__name__ and bool(
        code and code.co_argcount == len(defaults) and not value.__name__.startswith("_")
    )


def _call(text: str, function: Any) -> Any:
    """What the function returns, which takes no arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        usage(
            f"MODEL {text}: the function cannot be called without arguments: {error}", "wrap it in one that takes none"
        )
    except ValueError:  # a function without a signature
        pass
    return _run(text, function)


def _run(text: str, function: Callable[[], _Result]) -> _Result:
    """Run the user's code; what it raises is told with the line that raised it."""
    try:
        return function()
    except ImportError as error:
        usage(f"MODEL {text!r} cannot be imported: {error}")
    except DelegateKitError:
        raise
    except (Exception, SystemExit) as error:
        raise DelegateKitError(
            f"raised {type(error).__name__}: {error}", where=_last_line(text, error), hint="--debug shows the traceback"
        ) from error


def _last_line(text: str, error: BaseException) -> str:
    """The MODEL argument, and the last line of the user's own files before the error."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "site-packages" not in file and not file.startswith("<"):
            place = f" ({Path(file).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"MODEL {text}{place}"


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"
