"""The reference with one seeded fault as a backend, and a model of 500 operators to hide it in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import nn

#: A function that gives the backend a fault.
Faulty: TypeAlias = Callable[[str], None]

#: The plugin. The environment variable CROOKED gives the fault, at run time, and CROOKED_PRECISION, when the plugin is
#: installed, the precision to which each operator's result is rounded.
PLUGIN = '''
import os
from dataclasses import replace

import torch
from torch.utils._pytree import tree_map

import delegatekit_reference.plugin as sound
from delegatekit_api import hookimpl
from delegatekit_reference.ir.graph import Ref
from delegatekit_reference.runtime import Interpreter, ReferenceRuntime

PRECISION = os.environ.get("CROOKED_PRECISION", "float32")


@hookimpl
def describe_backend():
    return replace(
        sound.describe_backend(), name="crooked", delegate_id="CrookedBackend", distribution="delegatekit-crooked",
        version="1.2", compute_precision=PRECISION,
    )


create_partitioner, preprocess = sound.create_partitioner, sound.preprocess
quantization_schemes = sound.quantization_schemes


@hookimpl
def create_runtime():
    return Runtime()


class Runtime(ReferenceRuntime):
    def interpreter(self, graph, constants):
        return Crooked(graph, constants)


class Crooked(Interpreter):
    def step(self, index, step, args, kwargs):
        result = tree_map(coarse, super().step(index, step, args, kwargs))
        fault, _, name = os.environ.get("CROOKED", "").partition(" ")
        if step.operator != name:
            return result
        if fault == "scaled":
            return result * 1.001
        if fault.startswith("times"):
            return result * float(fault.removeprefix("times"))
        if fault == "one-twice":
            result[1].select(-1, 1).copy_(result[1].select(-1, 0))
        if fault == "turned":
            return [item.flip(-1) for item in result]
        if fault == "next":
            return [result[0], (result[1] + 1) % args[0].shape[-1]]
        if fault == "flipped":
            return ~result
        if fault == "nan":
            return result * float("nan")
        if fault == "one-more":
            return result + 1
        if fault == "raises":
            raise RuntimeError("out of luck")
        if fault == "after-linear" and self._reads(step, "aten.linear.default"):
            return result + 0.01
        if fault == "crowded" and len(self.graph.steps) > 2:
            return result * 1.5
        return result

    def _reads(self, step, operator):
        """True if it reads a result of such an operator that is not an output of the delegate."""
        for item in step.args:
            if isinstance(item, Ref) and item.value >= self.graph.first_step and item.value not in self.graph.outputs:
                if self.graph.steps[item.value - self.graph.first_step].operator == operator:
                    return True
        return False

def coarse(value):
    """A float32 tensor rounded to the precision."""
    known = isinstance(value, torch.Tensor) and value.dtype == torch.float32
    return value.to(getattr(torch, PRECISION)).float() if known else value
'''


class Deep(nn.Module):
    """100 blocks of five operators: the block `odd` has a tanh in place of the relu."""

    def __init__(self, blocks: int = 100, odd: int = 74, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(blocks))
        self.odd = odd

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            y = layer(x)
            y = torch.tanh(y) if number == self.odd else torch.relu(y)
            x = norm(x + torch.sigmoid(y))
        return x


def deep(blocks: int = 100, odd: int = 74) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The model, and its inputs."""
    torch.manual_seed(0)
    return Deep(blocks, odd).eval(), (torch.randn(2, 16),)
