"""The compile spec of ExecuTorch's QNN delegate (1.5): a flatbuffer with the options of compiler and runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delegatekit_api import CompileSpec, FormatError
from delegatekit_toolkit import flatbuffer as fb

from ..options import QnnOptions
from ..targets import CHIPS

KEY: Final = "qnn_compile_spec"
#: The Hexagon Tensor Processor among the kinds of backends.
_HTP: Final = 2
_PERFORMANCE: Final = {
    name: number
    for number, name in enumerate(
        (
            *("default", "sustained_high", "burst", "high", "power_saver", "low_power_saver", "high_power_saver"),
            *("low_balanced", "balanced"),
        )
    )
}
_FLOAT16: Final = 1
_PROFILE: Final = {"off": 0, "detailed": 2, "optrace": 3}
_LOG_ERRORS: Final = 1
#: Names that denote the library itself.
_LIBRARIES: Final = ("", "libQnnHtp.so")


class Opaque(fb.Table):
    """A table that is not read: it is for other processors."""


class HtpInfo(fb.Table):
    """The processor."""

    htp_arch: int = fb.i32()
    vtcm_size_in_mb: int = fb.u32()


class SocInfo(fb.Table):
    """The chip."""

    soc_model: int = fb.i32()
    htp_info: HtpInfo | None = fb.ref(lambda: HtpInfo)
    lpai_info: Opaque | None = fb.ref(lambda: Opaque)


class HtpOptions(fb.Table):
    """Options of the compiler and the runtime for the processor."""

    max_sf_buf_size: int = fb.i32()
    performance_mode: int = fb.i32()
    precision: int = fb.i32()
    pd_session: int = fb.i32()
    use_conv_hmx: bool = fb.bool_()
    use_dlbc: bool = fb.bool_()
    use_fold_relu: bool = fb.bool_()
    use_multi_contexts: bool = fb.bool_()
    use_weight_sharing: bool = fb.bool_()
    use_slc_allocator: bool = fb.bool_()


class BackendChoice(fb.Table):
    """One of the vendor's backends, and its options."""

    backend_type: int = fb.i32()
    htp_options: HtpOptions | None = fb.ref(lambda: HtpOptions)
    gpu_options: Opaque | None = fb.ref(lambda: Opaque)
    lpai_options: Opaque | None = fb.ref(lambda: Opaque)


class OpPackages(fb.Table):
    """Third-party packages of operations: libraries that the runtime would load."""

    op_package_infos: list[Opaque] | None = fb.tables(lambda: Opaque)


class Options(fb.Table):
    """The root."""

    soc_info: SocInfo | None = fb.ref(lambda: SocInfo)
    backend_options: BackendChoice | None = fb.ref(lambda: BackendChoice)
    library_path: str | None = fb.string()
    log_level: int = fb.i32()
    online_prepare: bool = fb.bool_()
    dump_intermediate_outputs: bool = fb.bool_()
    profile_level: int = fb.i32()
    shared_buffer: bool = fb.bool_()
    is_from_context_binary: bool = fb.bool_()
    saver: bool = fb.bool_()
    saver_output_dir: str | None = fb.string()
    op_package_options: OpPackages | None = fb.ref(lambda: OpPackages)
    use_mha2sha: bool = fb.bool_()


def options_of(options: QnnOptions, *, floats: bool, shared: bool = False) -> bytes:
    """The flatbuffer; `floats`: something is computed in floating point; `shared`: several graphs share weights."""
    chip = CHIPS[options.soc]
    htp = HtpOptions(
        performance_mode=_PERFORMANCE[options.performance],
        precision=_FLOAT16 if floats else 0,
        use_conv_hmx=True,
        use_fold_relu=True,
        use_weight_sharing=shared,
    )
    return fb.serialize(
        Options(
            soc_info=SocInfo(chip.number, HtpInfo(chip.generation, options.vtcm or chip.memory)),
            backend_options=BackendChoice(_HTP, htp),
            library_path="",
            log_level=_LOG_ERRORS,
            profile_level=_PROFILE[options.profile],
            saver_output_dir="",
            op_package_options=OpPackages([]),
        )
    )


def measured(value: bytes) -> bytes:
    """A compile spec of the same size with which the runtime reports the time of each operation.

    The same spec if it does so already, or has no room for it: stock's and ours have.
    """
    found = fb.parse(Options, value, ())
    if found.profile_level >= _PROFILE["detailed"]:
        return value
    # The folder is for what `check_spec` refuses; without its name there is room.
    made = fb.serialize(replace(found, profile_level=_PROFILE["detailed"], saver_output_dir=None))
    return made.ljust(len(value), b"\0") if len(made) <= len(value) else value


def check_spec(value: bytes) -> tuple[int, int]:
    """The chip's number and the MB of its fast memory. Raises FormatError for options unsafe for the runtime here.

    The delegate trusts its options: it reads tables that do not exist, and loads libraries and writes to folders that
    they name.
    """
    found = fb.parse(Options, value, ())
    fault = _fault(found)
    if fault is not None:
        raise FormatError(fault, where="QNN compile spec")
    assert found.soc_info is not None and found.soc_info.htp_info is not None
    return found.soc_info.soc_model, found.soc_info.htp_info.vtcm_size_in_mb


def _fault(found: Options) -> str | None:
    chip, backend = found.soc_info, found.backend_options
    if chip is None or chip.htp_info is None or backend is None or found.library_path is None:
        return "is incomplete: it does not name its chip"
    if backend.backend_type != _HTP or backend.htp_options is None:
        return "is for another processor than the HTP"
    packages = found.op_package_options
    if packages is None or packages.op_package_infos:
        return "names packages of operations, which are not loaded here"
    if found.library_path not in _LIBRARIES:
        return f"names the library {found.library_path}: only the installed one is used here"
    for name in ("online_prepare", "dump_intermediate_outputs", "shared_buffer", "saver"):
        if getattr(found, name):
            return f"asks for {name}, which does not work here"
    return None


def compile_spec_of(value: bytes) -> CompileSpec:
    """The compile spec with this flatbuffer."""
    return CompileSpec(KEY, value)
