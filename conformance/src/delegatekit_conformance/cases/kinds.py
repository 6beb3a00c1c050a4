"""A program of each kind that a backend may take: plain, with state, methods and changing sizes, and of each scheme.

Those without a scheme are the programs of the room sessions, one for each set of traits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from torch.export import ExportedProgram

import delegatekit
from delegatekit import Compiling, LoweredProgram
from delegatekit_api import DelegateKitError

from ..context import Context
from .base import NotApplicable
from .sessions.pairs import export, tensors
from .sessions.programs import KINDS
from .specimens import backend_of, compiles, delegates

#: The inputs of quantized programs.
_IMAGE = (1, 3, 6, 6)
#: The kind that also has its weights in a data file of its own.
_EXTERNAL = "layers"


@dataclass(frozen=True)
class Kind:
    """One of them: a program of the room sessions, or with `scheme`, one that is quantized."""

    program: str
    scheme: str = ""
    #: True if its constants lie in separate data files.
    external: bool = False

    def describe(self) -> str:
        """Its name in reports."""
        if self.scheme:
            return f"scheme {self.scheme}"
        return f"{self.program} with external data" if self.external else self.program


def kinds(context: Context) -> Iterator[Kind]:
    """The kinds for a backend: those tried with every backend, and one for each of its schemes."""
    first: dict[frozenset[str], str] = {}
    for name, kind in KINDS.items():
        first.setdefault(kind.traits, name)
    for name in first.values():
        yield Kind(name)
    yield Kind(_EXTERNAL, external=True)
    backend = backend_of(context)
    try:
        schemes = backend.quantization_schemes(backend.make_options(context.options))
    except DelegateKitError:  # the room declared reports it
        schemes = ()
    for scheme in schemes:
        yield Kind("", scheme.name)


def exported(kind: Kind, context: Context) -> Mapping[str, ExportedProgram]:
    """The program's methods; once in a process. Raises exceptions of quantizing and of torch.export."""
    if not kind.scheme:
        return _exported(kind.program)
    return _quantized(kind.scheme, context.backend, context.option_items)


@cache
def _exported(program: str) -> Mapping[str, ExportedProgram]:
    return export(KINDS[program].build, 0)


@cache
def _quantized(scheme: str, backend: str, options: tuple[tuple[str, object], ...]) -> Mapping[str, ExportedProgram]:
    """A convolution and linear layers: weights of each kind that schemes quantize."""
    torch.manual_seed(0)
    flat = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten())
    module = nn.Sequential(*flat, nn.Linear(8 * 36, 64), nn.Linear(64, 32)).eval().requires_grad_(False)
    inputs = (torch.randn(_IMAGE),)
    given = dict(options) or None
    quantized = delegatekit.quantize(module, [inputs], backend=backend, scheme=scheme, options=given, progress=False)
    return {"forward": torch.export.export(quantized, inputs, strict=False)}


def calls_of(kind: Kind) -> Sequence[tuple[str, Sequence[torch.Tensor]]]:
    """A call of each method: its name and inputs."""
    if kind.scheme:
        return [("forward", (torch.randn(_IMAGE),))]
    _, given = KINDS[kind.program].build(0)
    return [(name, tensors(inputs, 0)) for name, inputs in given.items()]


def lower_kind(kind: Kind, context: Context) -> LoweredProgram:
    """The program, lowered anew. Raises lowering's exceptions, and NotApplicable if the backend takes nothing of it."""
    compiles(context)
    program = delegatekit.lower(
        exported(kind, context),
        backends=[context.backend],
        options=context.by_backend,
        external=kind.external,
        compiling=Compiling(cache=False),
    )
    if not delegates(program, context.backend):
        raise NotApplicable("the backend takes no operator of it")
    return program
