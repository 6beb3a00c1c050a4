"""Objects in Python modules of the user that arguments name: package.module:name, or path/file.py:name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from delegatekit_api import DelegateKitError

from .console import usage

_Result = TypeVar("_Result")


def module_of(what: str, source: str) -> ModuleType:
    """The module that an argument names: by its dotted name, or by the path of its file. `what` is the argument, for
    messages: "MODEL net:make". Ends the command if there is none.
    """
    if source.endswith(".py"):
        path = Path(source)
        if not path.is_file():
            usage(f"{what}: {path} does not exist")
        sys.path.insert(0, str(path.parent.resolve()))
        return run_users(what, lambda: _module_of_file(path))
    sys.path.insert(0, str(Path.cwd()))
    return run_users(what, lambda: importlib.import_module(source))


def is_package(name: str) -> bool:
    """True if there is a module of this name, without a dot, here or in the current folder; it is not imported."""
    known = name in sys.modules or importlib.util.find_spec(name) is not None
    return known or PathFinder.find_spec(name, [str(Path.cwd())]) is not None


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


def attribute_of(what: str, module: ModuleType, attribute: str) -> Any:
    """The object of a module under a dotted name. Ends the command if there is none."""
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            functions = [name for name, value in vars(module).items() if _makes_models(module, value)]
            hint = f"functions that it could be: {', '.join(functions)}" if functions else None
            usage(f"{what} cannot be imported: {module.__name__} has no {attribute!r}", hint)
    return found


def _makes_models(module: ModuleType, value: Any) -> bool:
    """True for a function that the module itself defines and that needs no arguments."""
    code = getattr(value, "__code__", None)
    defaults = getattr(value, "__defaults__", None) or ()
    return getattr(value, "__module__", "") == module.__name__ and bool(
        code and code.co_argcount == len(defaults) and not value.__name__.startswith("_")
    )


def call_users(what: str, function: Any) -> Any:
    """The result of a function without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        usage(f"{what}: the function cannot be called without arguments: {error}", "wrap it in one that takes none")
    except ValueError:  # a function without a signature
        pass
    return run_users(what, function)


def run_users(what: str, function: Callable[[], _Result]) -> _Result:
    """Run the user's code; what it raises is told with the line that raised it."""
    try:
        return function()
    except ImportError as error:
        usage(f"{what} cannot be imported: {error}")
    except DelegateKitError:
        raise
    except (Exception, SystemExit) as error:
        raise DelegateKitError(
            f"raised {type(error).__name__}: {error}", where=_last_line(what, error), hint="--debug shows the traceback"
        ) from error


def _last_line(what: str, error: BaseException) -> str:
    """The argument, and the last line of the user's own files before the error."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file != __file__ and "site-packages" not in file and not file.startswith("<"):
            place = f" ({Path(file).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return f"{what}{place}"
