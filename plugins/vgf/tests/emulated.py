"""Runs a VGF file on Vulkan, with Arm's scenario runner and emulation layer: python emulated.py FOLDER.

The folder has `model.vgf`, `scenario.json` and the inputs as .npy files; outputs are written beside them. `run` makes
such a folder, and starts this as a process with the environment that the loader needs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Element type of TOSA -> Vulkan's format, and numpy's type.
_FORMATS = {"FP32": ("VK_FORMAT_R32_SFLOAT", np.float32), "INT8": ("VK_FORMAT_R8_SINT", np.int8)}
_LAYERS = "VK_LAYER_ML_Graph_Emulation:VK_LAYER_ML_Tensor_Emulation"
#: The folder of a newer loader (libvulkan.so) than the system's, and of libraries that drivers need.
LIBRARIES = "DELEGATEKIT_VULKAN_LIBRARIES"


def missing() -> str | None:
    """The package that is missing, if one is."""
    for module, name in (
        ("scenario_runner_py", "ai-ml-sdk-scenario-runner"),
        ("emulation_layer", "ai-ml-emulation-layer-for-vulkan"),
    ):
        if importlib.util.find_spec(module) is None:
            return f"{name} is not installed"
    return None


def environment() -> dict[str, str]:
    """This process's variables, and those that Arm's layers need. VK_ICD_FILENAMES may name the driver."""
    from emulation_layer.cli import get_deploy_paths

    paths = get_deploy_paths()
    libraries = (os.environ.get(LIBRARIES), paths["LD_LIBRARY_PATH"], os.environ.get("LD_LIBRARY_PATH"))
    return os.environ | {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "VK_LAYER_PATH": paths["VK_LAYER_PATH"],
        "VK_INSTANCE_LAYERS": _LAYERS,
    }


def run(
    blob: bytes, inputs: Sequence[Any], given: Sequence[Any], made: Sequence[Any], folder: Path
) -> tuple[list[Any] | None, str]:
    """The outputs of a file, or None, and what was printed. `given` and `made` are TOSA's tensors."""
    (folder / "model.vgf").write_bytes(blob)
    tensors, bindings = [], []
    for place, tensor in enumerate((*given, *made)):
        if place < len(given):
            np.save(folder / f"{place}.npy", inputs[place])
            more = {"shader_access": "readonly", "src": f"{place}.npy"}
        else:
            more = {"shader_access": "writeonly", "dst": f"{place}.npy"}
        form = _FORMATS[tensor.dtype.name][0]
        tensors.append({"tensor": {"dims": list(tensor.shape), "format": form, "uid": f"t{place}", **more}})
        bindings.append({"id": place, "set": 0, "resource_ref": f"t{place}"})
    dispatch = {"bindings": bindings, "graph_ref": "g", "shader_substitutions": []}
    scenario = {
        "commands": [{"dispatch_graph": dispatch}],
        "resources": [{"graph": {"src": "model.vgf", "uid": "g"}}, *tensors],
    }
    (folder / "scenario.json").write_text(json.dumps(scenario))
    done = subprocess.run(
        [sys.executable, __file__, str(folder)], capture_output=True, text=True, env=environment(), check=False
    )
    said = f"{done.stdout}{done.stderr}"
    if done.returncode:
        return None, said
    return [
        np.load(folder / f"{len(given) + place}.npy").view(_FORMATS[tensor.dtype.name][1]).reshape(tensor.shape)
        for place, tensor in enumerate(made)
    ], said


def main() -> None:
    """Run the scenario of a folder."""
    import scenario_runner_py as runner

    folder = sys.argv[1]
    runner.load_scenario(f"{folder}/scenario.json", work_dir=folder, output_dir=folder).run()


if __name__ == "__main__":
    main()
