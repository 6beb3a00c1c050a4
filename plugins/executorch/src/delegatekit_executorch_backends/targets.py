"""ExecuTorch's own backends: their classes by name, what they need, and what is known of them.

Nothing of ExecuTorch is imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Final

from delegatekit_api import Availability, BackendOptions

from .options import (
    CoreMLOptions,
    EthosUOptions,
    OpenVinoOptions,
    QnnOptions,
    StockOptions,
    TosaOptions,
    VulkanOptions,
    XnnpackOptions,
)

#: The distribution of ExecuTorch, and the line that installs the version that this plugin was written for.
STOCK: Final = "executorch"
INSTALL: Final = "pip install 'delegatekit-executorch-backends[compiler]'"

#: What ExecuTorch's MLX backend needs, and what writes it where the wheel lacks it: the generator, with flatc.
MLX_CODE: Final = "executorch/backends/mlx/serialization/mlx_graph_schema.py"
MLX_GENERATOR: Final = "executorch/backends/mlx/serialization/generate.py"
MLX_FLATC: Final = "executorch/data/bin/flatc" + (".exe" if sys.platform == "win32" else "")

#: The reason why something that a backend needs is not there; None if it is.
Need = Callable[[], "str | None"]


@dataclass(frozen=True)
class System:
    """A backend of ExecuTorch's."""

    #: The backend's name: "executorch.xnnpack".
    name: str
    delegate_id: str
    summary: str
    #: "module:class" of the partitioner and of the compiler (the `BackendDetails`); the module is a file of the wheel.
    partitioner: str
    compiler: str
    #: What it needs besides ExecuTorch, in the order in which it is asked for.
    needs: tuple[Need, ...] = ()
    options: type[BackendOptions] = StockOptions
    #: As in `BackendDescription`.
    compute_precision: str = "float32"
    dynamic: bool = False
    overread_bytes: int = 0
    #: True if the stock runtime of this host has its delegate.
    runs_in_stock: bool = False
    #: True if its partitioner leaves marks at nodes that its compiler reads: it sees each partition once more.
    marks_nodes: bool = False
    #: True if its delegate does not run with inputs or outputs without dimensions.
    needs_dimensions: bool = False
    #: The library that its delegate opens: the variable that names it, the package that has it, and where.
    library: tuple[str, str, str] | None = None
    #: True if its compiler may ask for the number of a size that changes, which fixes that at the example's.
    fixes_sizes: bool = False
    #: The operators for which it does, although its partitioner takes them.
    fixed: frozenset[str] = frozenset()
    #: True if code of its own is generated before it is imported, where the wheel lacks it.
    generated: bool = False
    #: True if its compiler or its runtime must not share a process with others.
    isolated: bool = False

    def availability(self) -> Availability:
        """Check that ExecuTorch and all that the backend needs are installed. Nothing is imported."""
        reason = self.reason()
        return Availability(reason is None, reason or "")

    def name_library(self) -> None:
        """Name its library, unless the user has, as ExecuTorch's Python layer does."""
        if self.library is not None:
            variable, package, pattern = self.library
            found = find_spec(package)
            folders = () if found is None else found.submodule_search_locations or ()
            files = [file for folder in folders for file in sorted(Path(folder).glob(pattern))]
            if files:
                os.environ.setdefault(variable, str(files[0]))

    def reason(self) -> str | None:
        """The reason why it cannot compile here; None if nothing is missing."""
        version = stock_version()
        if version is None:
            return f"ExecuTorch is not installed: {INSTALL}"
        module = self.partitioner.partition(":")[0]
        if stock_file(module.replace(".", "/") + ".py") is None:
            return f"the installed executorch {version} has no {module}"
        return next(filter(None, (need() for need in self.needs)), None)


def stock_version() -> str | None:
    """The version of the installed ExecuTorch; None if there is none."""
    try:
        return metadata.version(STOCK)
    except metadata.PackageNotFoundError:
        return None


def stock_file(path: str) -> Path | None:
    """A file of the installed ExecuTorch, by its path in the wheel: "executorch/..."; None if it is not there."""
    found = find_spec(STOCK)
    folders = () if found is None else found.submodule_search_locations or ()
    tried = (Path(folder).parent / path for folder in folders)
    return next((file for file in tried if file.is_file()), None)


def _module(name: str, words: str, source: str) -> str | None:
    try:
        found = find_spec(name)
    except ModuleNotFoundError:  # the package that a module is in
        found = None
    return None if found is not None else f"{words} is not installed: {source}"


def _file(path: str, words: str, source: str) -> str | None:
    return None if stock_file(path) is not None else f"{words} is not in the installed executorch: {source}"


def _variable(name: str, words: str, source: str) -> str | None:
    return None if os.environ.get(name) else f"{words}, which the variable {name} names, is not here: {source}"


def _program(names: Sequence[str], variable: str, words: str, source: str) -> str | None:
    """The reason why a program is not here: no variable names it, and none of its names is on the path."""
    found = os.access(os.environ.get(variable, ""), os.X_OK) or any(map(which, names))
    return None if found else f"{words} is neither on PATH nor named by the variable {variable}: {source}"


def _platform(name: str, words: str) -> str | None:
    return None if sys.platform == name else words


def _python(least: tuple[int, int], words: str) -> str | None:
    return None if sys.version_info[:2] >= least else words


def _old_openvino() -> str | None:
    """The reason why the installed OpenVINO does not fit: its blobs crash ExecuTorch's runtime from 2026 on."""
    version = metadata.version("openvino")
    if int(version.partition(".")[0]) < 2026:
        return None
    return (
        f"OpenVINO {version} is installed, and executorch {stock_version()} takes versions before 2026 (later ones end "
        "its process): pip install --no-deps 'openvino==2025.4.1', in an environment of its own"
    )


def _mlx_code() -> str | None:
    """The reason why the code that MLX's generator writes is neither there nor can be written."""
    if stock_file(MLX_CODE) is not None:
        return None
    source = "build ExecuTorch from its sources, or install its wheel for Linux or macOS"
    return _file(MLX_GENERATOR, "the generator of MLX's code", source) or _file(
        MLX_FLATC, "flatc, which MLX's generator needs,", source
    )


_ON_APPLE: Final = "compiles with Apple's tools: on a Mac with Xcode"
_VELA: Final = partial(_module, "ethosu.vela", "Vela", "pip install 'ethos-u-vela==5.1.0'")
_TOSA: Final = partial(_module, "tosa_serializer", "the TOSA serializer", "pip install 'tosa-tools==2026.5.0'")

_LISTED: Final = (
    System(
        "executorch.cadence",
        "CadenceBackend",
        "Cadence's DSPs",
        "executorch.backends.cadence.aot.compiler:export_to_cadence",
        "executorch.backends.cadence.aot.compiler:export_to_cadence",
        needs=(
            lambda: (
                "ExecuTorch has no partitioner for it: its passes replace operators by cadence::*, for which the "
                "Xtensa compiler from tensilicatools.com builds a runtime of its own"
            ),
        ),
    ),
    System(
        "executorch.coreai",
        "CoreAIBackend",
        "Apple's Core AI",
        "executorch.backends.apple.coreai.partition.partitioner:CoreAIPartitioner",
        "executorch.backends.apple.coreai.compiler.preprocess:CoreAIBackend",
        needs=(
            partial(_platform, "darwin", _ON_APPLE),
            partial(_module, "coreai_torch", "coreai-torch", "it comes with Apple's tools"),
        ),
    ),
    System(
        "executorch.coreml",
        "CoreMLBackend",
        "Apple's Neural Engine, GPU and CPU through Core ML",
        "executorch.backends.apple.coreml.partition.coreml_partitioner:CoreMLPartitioner",
        "executorch.backends.apple.coreml.compiler.coreml_preprocess:CoreMLBackend",
        needs=(partial(_module, "coremltools", "coremltools", "pip install 'coremltools==9.0'"),),
        options=CoreMLOptions,
        compute_precision="float16",
        dynamic=True,
    ),
    System(
        "executorch.cuda",
        "CudaBackend",
        "NVIDIA's GPUs through AOTInductor",
        "executorch.backends.cuda.cuda_partitioner:CudaPartitioner",
        "executorch.backends.cuda.cuda_backend:CudaBackend",
        needs=(
            partial(_module, "triton", "Triton", "it comes with a build of PyTorch for CUDA, from pytorch.org"),
            lambda: "compiles on a machine with an NVIDIA GPU and the CUDA toolkit (nvcc), from developer.nvidia.com",
        ),
    ),
    System(
        "executorch.ethosu",
        "EthosUBackend",
        "Arm's Ethos-U through TOSA and Vela (int8, int16)",
        "executorch.backends.arm.ethosu.partitioner:EthosUPartitioner",
        "executorch.backends.arm.ethosu.backend:EthosUBackend",
        needs=(_TOSA, _VELA),
        options=EthosUOptions,
    ),
    System(
        "executorch.example",
        "ExampleBackend",
        "ExecuTorch's example of a backend, which no runtime knows",
        "executorch.backends.example.example_partitioner:ExamplePartitioner",
        "executorch.backends.example.example_backend:ExampleBackend",
    ),
    System(
        "executorch.mediatek",
        "NeuropilotBackend",
        "MediaTek's APUs through NeuroPilot",
        "executorch.backends.mediatek.partitioner:NeuropilotPartitioner",
        "executorch.backends.mediatek.preprocess:NeuropilotBackend",
        needs=tuple(
            partial(_module, name, f"MediaTek's {name}", "NeuroPilot Express SDK, from neuropilot.mediatek.com")
            for name in ("mtk_converter", "mtk_neuron")
        ),
    ),
    System(
        "executorch.metal",
        "MetalBackend",
        "Apple's GPUs through AOTInductor",
        "executorch.backends.apple.metal.metal_partitioner:MetalPartitioner",
        "executorch.backends.apple.metal.metal_backend:MetalBackend",
        needs=(partial(_platform, "darwin", _ON_APPLE),),
    ),
    System(
        "executorch.mlx",
        "MLXBackend",
        "Apple's GPUs through MLX",
        "executorch.backends.mlx.partitioner:MLXPartitioner",
        "executorch.backends.mlx.preprocess:MLXBackend",
        needs=(_mlx_code,),
        dynamic=True,
        fixes_sizes=True,
        fixed=frozenset(
            f"aten.{pool}{axes}d{suffix}.default"
            for axes in (1, 2, 3)
            for pool, suffix in (("avg_pool", ""), ("max_pool", ""), ("max_pool", "_with_indices"))
        ),
        generated=True,
    ),
    System(
        "executorch.mps",
        "MPSBackend",
        "Apple's GPUs through Metal Performance Shaders, which ExecuTorch 1.5 does not have any more",
        "executorch.backends.apple.mps.partition.mps_partitioner:MPSPartitioner",
        "executorch.backends.apple.mps.mps_preprocess:MPSBackend",
        needs=(partial(_platform, "darwin", _ON_APPLE),),
    ),
    System(
        "executorch.native",
        "NativeBackend",
        "ExecuTorch's native graphs of ATen operators, for which the wheel has no runtime",
        "executorch.backends.native.partitioner:NativePartitioner",
        "executorch.backends.native.preprocess:NativeBackend",
        dynamic=True,
    ),
    System(
        "executorch.nxp",
        "NeutronBackend",
        "NXP's eIQ Neutron",
        "executorch.backends.nxp.neutron_partitioner:NeutronPartitioner",
        "executorch.backends.nxp.nxp_backend:NeutronBackend",
        needs=(
            partial(
                _module,
                "eiq_neutron_sdk",
                "NXP's eIQ Neutron SDK",
                "pip install --index-url https://eiq.nxp.com/repository eiq-neutron-sdk==3.2.0",
            ),
        ),
    ),
    System(
        "executorch.openvino",
        "OpenvinoBackend",
        "Intel's CPUs, GPUs and NPUs through OpenVINO",
        "executorch.backends.openvino.partitioner:OpenvinoPartitioner",
        "executorch.backends.openvino.preprocess:OpenvinoBackend",
        needs=(
            partial(_module, "openvino", "OpenVINO", "pip install --no-deps 'openvino==2025.4.1'"),
            partial(_module, "nncf", "NNCF, which its partitioner imports,", "pip install --no-deps 'nncf==3.2.0'"),
            _old_openvino,
        ),
        options=OpenVinoOptions,
        compute_precision="bfloat16",
        # (Not for sizes that change: its delegate leaves outputs at their upper bounds.)
        runs_in_stock=True,
        needs_dimensions=True,
        library=("OPENVINO_LIB_PATH", "openvino", "libs/libopenvino_c.so*"),
        isolated=True,
    ),
    System(
        "executorch.qnn",
        "QnnBackend",
        "Qualcomm's Hexagon Tensor Processor through QNN",
        "executorch.backends.qualcomm.partition.qnn_partitioner:QnnPartitioner",
        "executorch.backends.qualcomm.qnn_preprocess:QnnBackend",
        needs=(
            partial(
                _file,
                "executorch/backends/qualcomm/python/PyQnnManagerAdaptor.cpython-"
                f"{sys.version_info.major}{sys.version_info.minor}-x86_64-linux-gnu.so",
                "the binding of Qualcomm's library",
                "it is in the wheel for Linux on x86-64",
            ),
            partial(_variable, "QNN_SDK_ROOT", "Qualcomm's SDK", "it comes from softwarecenter.qualcomm.com"),
        ),
        options=QnnOptions,
        compute_precision="float16",
        runs_in_stock=True,
        isolated=True,
    ),
    System(
        "executorch.samsung",
        "EnnBackend",
        "Samsung's Exynos NPUs through ENN",
        "executorch.backends.samsung.partition.enn_partitioner:EnnPartitioner",
        "executorch.backends.samsung.enn_preprocess:EnnBackend",
        needs=(
            lambda: (
                "the binding PyEnnWrapperAdaptor is not in the installed executorch: build ExecuTorch with Exynos AI "
                "LiteCore, from soc-developer.semiconductor.samsung.com"
                if stock_file("executorch/backends/samsung/python/__init__.py") is None
                else None
            ),
        ),
    ),
    System(
        "executorch.tosa",
        "TOSABackend",
        "TOSA flatbuffers by Arm's partitioner, for which the wheel has no runtime",
        "executorch.backends.arm.tosa.partitioner:TOSAPartitioner",
        "executorch.backends.arm.tosa.backend:TOSABackend",
        needs=(_TOSA,),
        options=TosaOptions,
    ),
    System(
        "executorch.vgf",
        "VgfBackend",
        "Arm's ML extensions for Vulkan through TOSA and VGF",
        "executorch.backends.arm.vgf.partitioner:VgfPartitioner",
        "executorch.backends.arm.vgf.backend:VgfBackend",
        needs=(
            _TOSA,
            partial(
                _program,
                ("model-converter", "model_converter"),
                "MODEL_CONVERTER_PATH",
                "Arm's model converter",
                "pip install 'ai-ml-sdk-model-converter==0.11.0' 'ai-ml-sdk-vgf-library==0.11.0'; the folder of "
                "its program on PATH, too",
            ),
        ),
        options=TosaOptions,
    ),
    System(
        "executorch.vulkan",
        "VulkanBackend",
        "GPUs through Vulkan",
        "executorch.backends.vulkan.partitioner.vulkan_partitioner:VulkanPartitioner",
        "executorch.backends.vulkan.vulkan_preprocess:VulkanBackend",
        options=VulkanOptions,
        dynamic=True,
    ),
    System(
        "executorch.webgpu",
        "VulkanBackend",
        "GPUs through WebGPU, in blobs for Vulkan",
        "executorch.backends.webgpu.partitioner.partitioner:WebGPUPartitioner",
        "executorch.backends.vulkan.vulkan_preprocess:VulkanBackend",
        options=VulkanOptions,
        dynamic=True,
    ),
    System(
        "executorch.xnnpack",
        "XnnpackBackend",
        "CPUs through XNNPACK",
        "executorch.backends.xnnpack.partition.xnnpack_partitioner:XnnpackPartitioner",
        "executorch.backends.xnnpack.xnnpack_preprocess:XnnpackBackend",
        options=XnnpackOptions,
        dynamic=True,
        # XNNPACK's kernels load whole vectors and may read so many bytes after the end of an input.
        overread_bytes=64,
        runs_in_stock=True,
        # At quantize and dequantize operators: those that are the types of a quantized operator's values.
        marks_nodes=True,
    ),
)

#: The backends by their names.
SYSTEMS: Final[Mapping[str, System]] = {system.name: system for system in _LISTED}
