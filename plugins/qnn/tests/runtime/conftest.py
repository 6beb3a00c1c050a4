"""A quantized network of one layer, and the delegate of its file."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import delegatekit
from delegatekit_api import Availability, DelegatePayload
from delegatekit_qnn.plugin import describe_backend
from delegatekit_qnn.runtime import QnnRuntime


class Recorder(QnnRuntime):
    """Records its arguments."""

    def __init__(self) -> None:
        self.payloads: list[DelegatePayload] = []

    def init(self, payload: DelegatePayload) -> Any:
        self.payloads.append(payload)

    def destroy(self, handle: object) -> None:
        pass


#: payload_of(module, inputs, scheme, soc=...): the delegate of a module, in the form for its runtime.
PayloadOf = Callable[..., DelegatePayload]


@pytest.fixture(scope="session")
def file_of() -> Callable[..., bytes]:
    """file_of(module, inputs, scheme, **options): the module as a `.pte`, quantized if there is a scheme."""

    def lowered(module: Any, inputs: Any, scheme: str = "", **options: Any) -> bytes:
        quantized = delegatekit.quantize(module, [inputs], backend="qnn", scheme=scheme) if scheme else module
        return delegatekit.lower(quantized, inputs, backends=["qnn"], options={"qnn": options}).buffer

    return lowered


@pytest.fixture
def payload_of(file_of: Any) -> PayloadOf:
    def found(*arguments: Any, **options: Any) -> DelegatePayload:
        recorder = Recorder()
        backend = SimpleNamespace(
            name="qnn",
            description=describe_backend(),
            runtime_availability=lambda **how: Availability(True),
            create_runtime=lambda **how: recorder,
        )
        assert delegatekit.load(file_of(*arguments, **options), find_backend=lambda delegate_id: backend)["forward"]
        return recorder.payloads[0]

    return found


@pytest.fixture(scope="session")
def layer() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3).eval()
