"""ETDump: the stock runtime's own files, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.etdump import EXECUTE, read_events

_C = pytest.importorskip("executorch.extension.pybindings._C", reason="the stock runtime (executorch) is not installed")


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The stock runtime's ETDump of two calls of a program of two operators."""
    delegatekit = pytest.importorskip("delegatekit")
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    data = delegatekit.lower(module, (torch.ones(2, 3),), backends=[]).buffer  # the binding does not keep it alive
    loaded = _C._load_for_executorch_from_buffer(data, enable_etdump=True)
    for _ in range(2):
        loaded.run_method("forward", (torch.ones(2, 3),))
    path: Path = tmp_path_factory.mktemp("etdump") / "x.etdump"
    loaded.write_etdump_result_to_file(str(path))
    return path.read_bytes()


def test_events_have_names_places_and_times(dump: bytes) -> None:
    events = read_events(dump)
    calls = [event for event in events if event.name == EXECUTE]
    assert len(calls) == 2
    operators = [event for event in events if str(event.name).startswith("native_call_")]
    assert [event.instruction_id for event in operators] == [0, 1, 0, 1]
    assert all(event.start_time < event.end_time for event in events)
    assert calls[0].start_time <= operators[0].start_time < operators[1].end_time <= calls[0].end_time
    assert 0 < sum(event.end_time - event.start_time for event in calls) < 60e9


@pytest.mark.parametrize("size", [0, 3, 11, 12, 40, 200])
def test_what_was_cut_off_is_refused(size: int, dump: bytes) -> None:
    with pytest.raises(FormatError):
        read_events(dump[:size])


def test_flipped_bits_are_refused_or_read(dump: bytes) -> None:
    refused = 0
    for place in range(4, len(dump)):
        damaged = bytearray(dump)
        damaged[place] ^= 0x55
        try:
            read_events(bytes(damaged))
        except FormatError:
            refused += 1
    assert refused > 20


def test_other_files_are_refused() -> None:
    with pytest.raises(FormatError, match="file identifier"):
        read_events(b"\x10\0\0\0\x08\0\0\0ET12" + bytes(16))
