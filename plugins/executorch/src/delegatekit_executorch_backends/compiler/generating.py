"""The code of ExecuTorch's MLX backend that its build writes and its wheels leave out.

ExecuTorch's own generator writes it, from the schema and by the flatc of the wheel, into a folder that is gone once the
code is imported: nothing is written beside the installed files, and nothing is left to be imported another day.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import copytree, ignore_patterns
from types import ModuleType
from typing import Final

from delegatekit_toolkit.processes import ending
from delegatekit_toolkit.scratch import scratch

from ..targets import MLX_CODE, MLX_FLATC, MLX_GENERATOR, stock_file

#: The package that the code is in, and a module beside it, which ExecuTorch's inspector of such delegates reads.
_PACKAGE: Final = "executorch.backends.mlx.serialization"
_INSPECTOR: Final = "executorch.backends.mlx._generated_inspector"
#: C++ for its runtime, which the generator writes, too, by templates that are not in the wheel and may be empty.
_TEMPLATES: Final = ("MLXLoader.h.tmpl", "MLXLoader.cpp.tmpl")
#: The seconds that the generator may take; it takes less than one.
_PATIENCE: Final = 120.0


def generate_mlx() -> None:
    """Import the code, unless the wheel has it or it was imported before. Raises ImportError if it cannot be had."""
    if _PACKAGE not in sys.modules and stock_file(MLX_CODE) is None:
        with scratch() as folder:
            _import(_generated(folder))


def _generated(folder: Path) -> Path:
    """A copy of the package's folder in which the generator has run."""
    generator, flatc = stock_file(MLX_GENERATOR), stock_file(MLX_FLATC)
    if generator is None or flatc is None:
        raise ImportError("the installed executorch lacks the generator of its code, or flatc")
    # (The generator writes to places beside itself.)
    made = Path(copytree(generator.parent, folder / "mlx" / "serialization", ignore=ignore_patterns("__pycache__")))
    for name in _TEMPLATES:
        (made / name).touch()
    (made.parent / "runtime").mkdir()
    command = [sys.executable, "-I", str(made / generator.name), "--flatc", str(flatc)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImportError(f"the generator of its code cannot be run: {error}") from error
    # (It goes on without what flatc did not write.)
    if done.returncode or not any((made / "_generated").glob("*/*.py")):
        lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
        said = "; ".join(line for line in lines if "failed" in line or "rror" in line) or "; ".join(lines[-3:])
        raise ImportError(f"the generator of its code {ending(done.returncode)}: {said[:500] or 'it says nothing'}")
    return made


def _import(made: Path) -> None:
    """Import all generated modules by their names in ExecuTorch, whose other modules then find them without files."""
    try:
        _load(_PACKAGE, made / "__init__.py")
        for name in ("_generated", "_generated_serializers", "mlx_graph_schema"):
            import_module(f"{_PACKAGE}.{name}")
        _load(_INSPECTOR, made.parent / "_generated_inspector.py")
    except BaseException:
        for name in [name for name in sys.modules if name == _INSPECTOR or f"{name}.".startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]
        raise


def _load(name: str, file: Path) -> ModuleType:
    """A module, or a package, from a file. It can be imported while it is loaded, as it imports itself on the way."""
    folder = [str(file.parent)] if file.stem == "__init__" else None
    spec = spec_from_file_location(name, file, submodule_search_locations=folder)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file.name} cannot be imported")
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
