"""The description of a backend."""

from __future__ import annotations

from dataclasses import dataclass

from ._options import BackendOptions
from ._version import API_VERSION, ApiVersion


@dataclass(frozen=True)
class BackendDescription:
    """The facts about a backend that do not depend on a program.

    Core compares `name` with the entry point's name and `api_version` with its own before it calls anything else.
    """

    #: The name of the backend for users; equal to the entry point's name.
    name: str
    #: The delegate id written into the .pte, as registered with the runtime on the device. Of a backend with runtime
    #: operators: their namespace.
    delegate_id: str
    #: The distribution that ships the plugin ("delegatekit-NAME") and its version.
    distribution: str
    version: str
    #: One line for listings.
    summary: str
    #: The API version that the plugin was written for: a literal, not this package's `API_VERSION`.
    api_version: ApiVersion = API_VERSION
    #: The typed options of the backend.
    options: type[BackendOptions] = BackendOptions
    #: Lowest precision that the backend computes float32 graphs in; tolerances of the conformance suite follow from it.
    #: Where an option changes it, the hook `compute_precision(options)` gives it.
    compute_precision: str = "float32"
    #: True if delegates accept inputs whose sizes change from call to call within the exported bounds.
    supports_dynamic_shapes: bool = False
    #: True if the runtime on the device (stock ExecuTorch's) accepts such inputs, too. False: only the runtime
    #: of this package does: reports note it for delegates whose sizes change.
    device_dynamic_shapes: bool = True
    #: Lowest precision that the runtime on the device (stock ExecuTorch's) computes float32 graphs in, if that is
    #: not that of the runtime of this package; empty if it is. An option that makes the one here coarser makes
    #: the one on the device as coarse. Since API version 2.3.
    device_compute_precision: str = ""
    #: Bytes that the runtime may read past the end of a tensor: core pads the arena by as many.
    overread_bytes: int = 0
    #: True if a delegate may keep buffers that the method updates inside itself, from call to call. Such a buffer's
    #: placeholder and its new value are then both inside the partition (`ProgramView.buffers`).
    owns_state: bool = False
    #: True if the compiler needs a process of its own, in which it has not been used before: because it prints, leaks,
    #: crashes, or makes other bytes when it is used again. `preprocess` then runs there.
    isolated_compiler: bool = False
    #: True if the runtime needs a process of its own: because the vendor's library crashes on damaged data, prints, or
    #: disturbs other libraries. Everything of the `DelegateRuntime` then happens there.
    isolated_runtime: bool = False
    #: True if the runtime notices a blob or named data with changed bytes (by a checksum) and refuses it. Where it does
    #: not, damage may go unnoticed, which the conformance suite counts separately.
    integrity_check: bool = False
    #: False if the runtime is meant for blobs of this distribution: a file that does not name its maker is then run by
    #: another backend of the delegate id, if there is one, and so are the delegates of backends without a runtime.
    #: Since API version 2.4.
    runs_any_maker: bool = True
