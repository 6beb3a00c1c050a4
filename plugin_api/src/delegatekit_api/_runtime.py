"""Running a delegate's blob in this process: the runtime protocol and its inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ._partition import CompileSpec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Availability:
    """The availability of a runtime or a compiler here; if it cannot work, the reason and what to install."""

    available: bool
    reason: str = ""


@dataclass(frozen=True)
class Verification:
    """A tool, not the plugin's own, that checks the result of `preprocess` before it is used.

    `used` is true if it runs here with the current options; if not, `reason` says why, and what to do.
    """

    #: "Acme's instruction set simulator".
    judge: str
    used: bool
    reason: str = ""


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one argument of a delegate call. `dtype` is torch's name: "float32"."""

    dtype: str
    shape: tuple[int, ...]
    #: True if sizes may be smaller than `shape` at run time.
    dynamic: bool = False
    #: The axes in the order in which they lie in memory, outermost first; empty if that is the order of `shape`.
    dim_order: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class DelegatePayload:
    """One delegate of a loaded program, as its runtime receives it. The buffers stay valid until `destroy`."""

    delegate_id: str
    blob: memoryview
    compile_specs: tuple[CompileSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: The file's named data, by key.
    named_data: Mapping[str, memoryview]
    #: The delegate alone as a complete .pte with one method, `method`, for runtimes that accept only whole files; its
    #: argument are the keys of the named data to put in. Inputs and outputs are not memory-planned: the runtime points
    #: at the caller's tensors.
    as_program: Callable[[Collection[str]], bytes]
    #: Positions among the arguments of the file's call (inputs, then outputs) of numbers, which are not given to
    #: `execute`: stock ExecuTorch passes them where a delegate's program names sizes.
    numbers: tuple[int, ...] = ()
    #: Name of the calling method.
    method: str = "forward"


class DelegateRuntime(Protocol):
    """Executes a backend's blobs.

    A handle is used by one thread at a time, but not always by the same one: it may be made, executed and destroyed in
    different threads. Several handles are used at the same time. No method changes settings of the process.
    """

    def is_available(self) -> Availability:
        """The availability of the runtime in this process. Must not raise."""
        ...

    def init(self, payload: DelegatePayload) -> Any:
        """Prepare a blob and return a handle. Raises FormatError for a blob that it cannot load."""
        ...

    def execute(self, handle: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        """Run once: results are written into `outputs`. Raises ExecutionError.

        All tensors are dense, their axes in the `dim_order` of their specs: contiguous, if there is none.
        Inputs have the sizes of this call. An output whose spec is `dynamic` comes with the largest sizes: the runtime
        resizes it (`Tensor.resize_`, never beyond them) to those of the result.
        """
        ...

    def destroy(self, handle: Any) -> None:
        """Release a handle. Destroying it twice is harmless."""
        ...
