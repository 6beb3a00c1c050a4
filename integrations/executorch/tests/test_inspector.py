"""ExecuTorch's tools on files of our partitioners: ETRecord, delegate maps, Inspector."""

from __future__ import annotations

from pathlib import Path

import torch
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib
from pipelines import exported
from torch import nn

from delegatekit_executorch import partitioner


def test_the_inspector_tells_a_delegates_operators_by_the_modules_lines(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()
    x = torch.randn(2, 8)
    edge = to_edge_transform_and_lower(
        exported(model, (x,)), partitioner=[partitioner("xnnpack")], generate_etrecord=True
    )
    program = edge.to_executorch()
    program.get_etrecord().save(str(tmp_path / "etrecord.bin"))
    (delegate,) = program.delegate_map["forward"].values()
    handles = {handle for found in delegate["delegate_map"].values() for handle in found}
    assert delegate["name"] == "XnnpackBackend" and len(handles) == 3
    loaded = portable_lib._load_for_executorch_from_buffer(
        program.buffer, enable_etdump=True, debug_buffer_size=1 << 20
    )
    loaded.forward((x,))
    loaded.write_etdump_result_to_file(str(tmp_path / "etdump"), str(tmp_path / "debug"))
    inspector = Inspector(etdump_path=str(tmp_path / "etdump"), etrecord=str(tmp_path / "etrecord.bin"))
    events = [event for block in inspector.event_blocks for event in block.events]
    delegated = [event for event in events if event.is_delegated_op]
    operators = {name for event in delegated for name in event.op_types}
    assert delegated and {"aten.linear.default", "aten.gelu.default"} <= operators
