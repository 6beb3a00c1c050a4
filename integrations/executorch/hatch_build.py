"""Puts the native library into the wheel, where it can be built: the build environment has ExecuTorch and a compiler.

Without them the wheel has only its source, and the library is built when it is first used. With the environment
variable DELEGATEKIT_HOST_LIBRARY=required, as releases have it, such a wheel is an error. An editable installation has
none: its source may change.
"""

from __future__ import annotations

import os
import runpy
import shutil
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = "delegatekit_executorch/native"


class NativeLibrary(BuildHookInterface[Any]):
    """Builds the library before the wheel is made, and removes it after that."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library and the tag of a wheel for this platform."""
        if self.target_name != "wheel" or version == "editable":
            return
        building = runpy.run_path(str(Path(self.root) / "src" / _MODULE / "building.py"))
        self._folder = tempfile.mkdtemp(prefix="delegatekit-")
        library = Path(self._folder) / building["NAME"]
        try:
            building["build"](_executorch(building), library)
        except building["BuildError"] as error:
            if os.environ.get("DELEGATEKIT_HOST_LIBRARY") == "required":
                raise SystemExit(f"error: {error.what}\n  -> {error.hint}") from None
            self.app.display_warning(f"without the native library, which is then built at its first use: {error.what}")
            return
        build_data["force_include"][str(library)] = f"{_MODULE}/{building['NAME']}"
        build_data["pure_python"] = False
        # For every Python: the library knows nothing of it.
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the library."""
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)


def _executorch(building: dict[str, Any]) -> Path:
    """The folder of the right version of the package. Raises BuildError."""
    from importlib import metadata

    wanted = building["EXECUTORCH"]
    install = f"pip install executorch=={wanted}, and build without isolation (pip wheel --no-build-isolation)"
    spec = find_spec("executorch")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise building["BuildError"]("executorch is not installed in the environment of the build", install)
    found = metadata.version("executorch").partition("+")[0]
    if found != wanted:
        raise building["BuildError"](f"executorch {found} is installed, and this package is for {wanted}", install)
    return Path(places[0])
