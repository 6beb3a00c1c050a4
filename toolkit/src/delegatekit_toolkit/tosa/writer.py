"""A TOSA graph as a file: version 1.0, one region with one block."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np

from delegatekit_toolkit import flatbuffer as fb

from . import schema
from .graph import Graph
from .operators import Clamp
from .tensors import Operation, Tensor
from .types import NUMPY_TYPES, DType, pack

#: The version of the specification for new files.
VERSION: Final = (1, 0, 0)


def write(graph: Graph) -> bytes:
    """Serialize a graph; the same graph gives the same bytes.

    Constants become operators without operands, before all others; unused ones are left out. Names are kept. Raises
    LoweringError for an operand that is not defined before its use; `Graph.verify` checks more.
    """
    graph.verify_order()
    used = {id(tensor) for operation in graph.operations for tensor in operation.inputs} | set(map(id, graph.outputs))
    constants = [tensor for tensor in graph.constants if id(tensor) in used]
    tensors = [*graph.inputs, *constants, *(operation.output for operation in graph.operations)]
    block = schema.TosaBasicBlock(
        name=graph.name,
        operators=[*map(_constant, constants), *map(_operator, graph.operations)],
        tensors=[_tensor(tensor) for tensor in tensors if tensor.dtype != DType.SHAPE],
        inputs=[tensor.name for tensor in graph.inputs],
        outputs=[tensor.name for tensor in graph.outputs],
        shapes=[_shape(tensor) for tensor in tensors if tensor.dtype == DType.SHAPE],
    )
    version = schema.Version(*VERSION, draft=False)
    root = schema.TosaGraph(version, [schema.TosaRegion(graph.name, [block])])
    return fb.serialize(root, schema.IDENTIFIER)


def _tensor(tensor: Tensor) -> schema.TosaTensor:
    data = None if tensor.data is None else pack(tensor.data, tensor.dtype)
    return schema.TosaTensor(name=tensor.name, shape=list(tensor.shape), type=tensor.dtype, data=data)


def _shape(tensor: Tensor) -> schema.TosaShape:
    assert tensor.data is not None
    return schema.TosaShape(tensor.name, tensor.size, pack(tensor.data, tensor.dtype))


def _constant(tensor: Tensor) -> schema.TosaOperator:
    code = schema.CONST_SHAPE if tensor.dtype == DType.SHAPE else schema.CONST
    return schema.TosaOperator(op=code, attribute=schema.MEMBERS[code - 1](), inputs=[], outputs=[tensor.name])


def _operator(operation: Operation) -> schema.TosaOperator:
    operator = operation.operator
    values: dict[str, Any] = {item.name: getattr(operator, item.name) for item in fields(operator)}
    if isinstance(operator, Clamp):
        type_ = NUMPY_TYPES[operation.output.dtype]
        for bound in ("minimum", "maximum"):
            values[bound] = pack(np.array(values[bound], type_), operation.output.dtype)
    return schema.TosaOperator(
        op=operator.code,
        attribute=schema.ATTRIBUTES[type(operator)](**values),
        inputs=[tensor.name for tensor in operation.inputs],
        outputs=[operation.output.name],
    )
