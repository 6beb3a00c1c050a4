"""The operators of a VGF file in readable form, of our files and stock's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from delegatekit_api import CompileSpec
from delegatekit_api.blobs import BlobOperator
from delegatekit_toolkit.tosa import Operator

from .container import unpack
from .spirv import read_graph


def operators(blob: memoryview, compile_specs: Sequence[CompileSpec]) -> list[BlobOperator]:
    """The operators of the graph in its order. Raises FormatError for a damaged file."""
    return [
        BlobOperator(
            item.operator.name,
            tuple(tensor.name for tensor in item.inputs),
            (item.output.name,),
            {"result": f"{item.output.dtype.name.lower()}{list(item.output.shape)}", **_facts(item.operator)},
        )
        for item in read_graph(unpack(blob)).operations
    ]


def _facts(operator: Operator) -> dict[str, str]:
    """The attributes that are not their defaults."""
    found = ((item.name, item.default, getattr(operator, item.name)) for item in fields(operator))
    return {name: str(value) for name, default, value in found if value != default}
