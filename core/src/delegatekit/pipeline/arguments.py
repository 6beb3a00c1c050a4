"""The arguments of the functions that lower, plan and quantize, declared once: each is a field of a frozen dataclass.

The fields are a function's parameters (`takes`), their paragraphs its help and the pages', and the command line's
options. Importing this imports no torch.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram
    from torch.fx import Node

    from ..compiling import Compiling
    from ..edge import Model
    from ..emit import External, MemoryOptions
    from ..lowering.budget import Budget
    from ..lowering.shares import Minimum
    from ..partition import PartitionFunction, Placement, Selectors
    from ..passes import ProgramPassLike

_Parameters = ParamSpec("_Parameters")
_Arguments = TypeVar("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Source:
    """A model and its export.

    Args:
        model: A module in eval mode, an ExportedProgram, or a mapping of method names to ExportedPrograms.
        inputs: Example inputs of a module, by position.
        kwargs: Example inputs of a module, by name.
        dynamic_shapes: Sizes of a module's inputs that may change from call to call. As torch.export takes them; each
            needs an upper bound.
    """

    model: Model | Mapping[str, Model]
    inputs: Sequence[Any] | None = None
    _: KW_ONLY
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None

    def programs(self, stage: AbstractContextManager[Any] | None = None) -> dict[str, ExportedProgram]:
        """The programs by method name; a module is exported within `stage`. Raises LoweringError."""
        from ..edge import exported_programs

        return exported_programs(self.model, self.inputs, self.kwargs, self.dynamic_shapes, stage or nullcontext())


@dataclass(frozen=True, kw_only=True)
class Selecting(Source):
    """A model, backends for it, and the nodes that they may take.

    Args:
        backends: Backends in priority order.
        options: Options of backends, by the backends' names.
        only: Modules and operators that backends may take. A list of module paths ("encoder.layers.*.attn", with all
            that is inside; "**" is any number of parts), operators ("aten.linear.default", "aten.linear", "linear": as
            exported, or as `explain` shows them) or functions of a node, for all backends or as a dict by backend. What
            selects nothing is refused, and so is a name that is both a module and an operator: "module:linear",
            "operator:linear".
        skip: Modules and operators that no backend takes. As `only`; a backend gets only nodes that `only` selects and
            none that `skip` selects. The attribute `reason` of a function is what reports say.
    """

    backends: Sequence[str]
    options: Mapping[str, Mapping[str, Any]] | None = None
    only: Selectors | None = None
    skip: Selectors | None = None


@dataclass(frozen=True, kw_only=True)
class Partitioning(Selecting):
    """A model, backends for it, and its partitioning.

    Args:
        partition: A function that forms the partitions itself, or a placement. The function is called for each graph
            (and again when operators that nothing runs whole were decomposed) with its ProgramView and with
            `ask(backend, node)`; it returns pairs of a backend and the nodes of one delegate, which are checked; other
            nodes run on the runtime. A mapping of methods to mappings of operators (names of the edge program's nodes)
            to backends ("" for none) only places these: partitions grow as usual.
        keep: Operators that stay whole for backends that ask for them so, or backends of which all such do. By default
            all do. What one backend wants whole, another may take in parts only.
        passes: Passes that change the program before backends are asked about it, in order. See
            `delegatekit_toolkit.passes`.
    """

    partition: PartitionFunction | Placement | None = None
    keep: Sequence[str] | None = None
    passes: Sequence[ProgramPassLike] | None = None


@dataclass(frozen=True, kw_only=True)
class Planning(Partitioning):
    """The arguments of `plan`.

    Args:
        every: Ask each backend about each node, also about those that another one takes. `verdicts` of a plan has all
            answers.
    """

    every: bool = False


@dataclass(frozen=True, kw_only=True)
class Lowering(Partitioning):
    """The arguments of `lower`.

    Args:
        external: The weights that live outside the .pte. A function that is called with the name and the data of each
            constant and of each piece of named data of a backend, and answers False (inside), True (in the data file
            that is named as the .pte is) or the name of a data file; or one of these answers for all. Names are the
            fully qualified names of parameters and buffers; constants that were computed have names made from their
            content. The initial values of buffers that the program updates stay inside.
        stack_traces: Put the source lines of instructions into the file.
        memory: The planner, the alignment and the memory spaces of the values.
        budget: Limits of what the delegates may take by their backends' estimates. {"sram": "512KB", "latency":
            "20ms"}, or bytes and seconds; what is over raises LoweringError with the figures. Only delegates are
            counted: see `lowering.budget.check_budget`.
        min_delegated: The least share of the program that backends must run. Of its operators, "95%" or 0.95, or of its
            multiply-accumulates, {"macs": "95%"}, or both; less raises LoweringError with the largest that is left out
            and the reasons, before anything is compiled.
        compiling: How the backends' compilers run. In processes of their own, several at a time, with limits, with or
            without the cache of what was compiled before.
        constant_methods: Methods without inputs by name, and what each returns. A bool, int, float, str, or a sequence.
    """

    external: External = False
    stack_traces: bool = False
    memory: MemoryOptions | None = None
    budget: Budget | None = None
    min_delegated: Minimum | None = None
    compiling: Compiling | None = None
    constant_methods: Mapping[str, Any] | None = None

    def programs(self, stage: AbstractContextManager[Any] | None = None) -> dict[str, ExportedProgram]:
        """The model's programs, and those of the constant methods. Raises LoweringError."""
        from delegatekit_toolkit.constant_methods import with_constants

        return with_constants(super().programs(stage), self.constant_methods)


@dataclass(frozen=True, kw_only=True)
class Delegating(Source):
    """The arguments of `to_backend`.

    Args:
        backend: The backend that takes the whole module.
        options: Its options.
        passes: Passes that change the program before the backend is asked about it, in order.
    """

    backend: str
    options: Mapping[str, Any] | None = None
    passes: Sequence[ProgramPassLike] | None = None


@dataclass(frozen=True, kw_only=True)
class _Scheme:
    """A quantization scheme and its use.

    Args:
        backend: The backend whose scheme is used.
        scheme: A scheme of the backend (`delegatekit schemes`); without it, the first.
        keep_float: Layers that stay in float. As `only` of `lower`: module paths ("encoder.layers.0", with all inside),
            operators ("aten.add.Tensor", "add") or functions of a node.
        options: Options of the backend. As `lower` will get them: a target may quantize more than another.
        dynamic_shapes: Sizes of the model's inputs that may change from call to call. As torch.export takes them.
    """

    backend: str
    scheme: str | None = None
    keep_float: Sequence[str | Callable[[Node], bool]] = ()
    options: Mapping[str, Any] | None = None
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None


@dataclass(frozen=True)
class Training(_Scheme):
    """The arguments of `prepare_qat`.

    Args:
        model: A module in training mode.
        example: Its inputs.
    """

    model: torch.nn.Module
    example: Sequence[Any]


@dataclass(frozen=True)
class Quantizing(_Scheme):
    """The arguments of `quantize`.

    Args:
        model: A module in eval mode or an ExportedProgram. It is not changed.
        calibration: An iterable of inputs, each a tuple (or one tensor). The first is also the example for
            torch.export.
        keep_worst_float: Number of the least exact layers to keep in float. Those with the least signal to noise ratio
            of their own, beside those of `keep_float`.
        measure: Measure each layer against float. The report has the signal to noise ratios.
        correct_bias: Take the layers' mean errors out of their biases. Those of convolutions and linear layers, over
            the calibration inputs.
        group_size: Size of the weights' groups. Where the scheme has groups.
        deferred: Keep the float weights, and compute their integers where they are read. For models larger than memory.
        progress: Show a bar on stderr. None: on a terminal.
    """

    model: torch.nn.Module | ExportedProgram
    calibration: Iterable[Any]
    _: KW_ONLY
    keep_worst_float: int = 0
    measure: bool = False
    correct_bias: bool = False
    group_size: int | None = None
    deferred: bool = False
    progress: bool | None = None


def takes(
    arguments: Callable[_Parameters, _Arguments],
) -> Callable[[Callable[[_Arguments], _Result]], Callable[_Parameters, _Result]]:
    """Decorate a function of such a dataclass: the fields are its parameters, their paragraphs its help."""
    signature = inspect.signature(arguments)

    def taking(function: Callable[[_Arguments], _Result]) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def call(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(arguments(*args, **kwargs))

        told: Any = call
        told.__signature__ = signature.replace(return_annotation=function.__annotations__["return"])
        told.__doc__ = f"{inspect.getdoc(function)}\n\nArgs:\n" + "\n".join(
            textwrap.fill(f"{name}: {text}", 116, initial_indent="    ", subsequent_indent="        ")
            for name, text in paragraphs(arguments).items()
        )
        return call

    return taking


def paragraphs(arguments: Any) -> dict[str, str]:
    """The paragraph of each field of a dataclass, its bases' first: from the part "Args:" of the docstrings."""
    return {name: text for base in reversed(arguments.__mro__) for name, text in parsed(base.__doc__ or "").items()}


def parsed(doc: str) -> dict[str, str]:
    """Name -> paragraph, of the part "Args:" of a docstring.

    >>> parsed("A tale.\\n\\nArgs:\\n    hero: Who wins,\\n        at last.\\n    end: Comes\\n\\nRaises nothing.")
    {'hero': 'Who wins, at last.', 'end': 'Comes'}
    """
    _, _, part = inspect.cleandoc(doc).partition("\n\nArgs:\n")
    items = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in items}
