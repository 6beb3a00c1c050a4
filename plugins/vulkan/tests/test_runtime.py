"""The runtime on the host: choosing a device, sessions, threads, copies through staging memory, errors."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_api import DelegateKitError, ExecutionError
from delegatekit_conformance.testkit import Lowered, lower
from delegatekit_vulkan.runtime import binding, device, resident

pytestmark = pytest.mark.needs_device


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, 12).reshape(3, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = (x + self.weight) * x
        return y - 1, y / (self.weight + 2)


@pytest.fixture(scope="module")
def net() -> Lowered:
    return lower(Net(), torch.randn(3, 4), backend="vulkan")


def close(got: object, x: torch.Tensor) -> None:
    torch.testing.assert_close(got, Net()(x), rtol=1e-6, atol=1e-6)


def test_calls_do_not_disturb_each_other(net: Lowered) -> None:
    method = delegatekit.load(net.buffer)["forward"]
    inputs = [torch.randn(3, 4) for _ in range(4)]
    results = [method(x) for x in inputs]
    for x, got in zip(inputs, results, strict=True):
        close(got, x)


def test_sessions_share_the_constants_on_the_device(net: Lowered) -> None:
    program = delegatekit.load(net.buffer)
    first, second = program["forward"], program.new_session()["forward"]
    x = torch.randn(3, 4)
    close(first(x), x)
    before = len(resident._shared)
    close(second(-x), -x)
    assert len(resident._shared) == before
    program.close()
    close(delegatekit.load(net.buffer)["forward"](x), x)


def test_several_threads_run_their_own_sessions(net: Lowered) -> None:
    program = delegatekit.load(net.buffer)
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
            method = program.new_session()["forward"]
            for _ in range(20):
                close(method(x), x)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_memory_that_the_host_does_not_see_is_copied_through_staging(
    net: Lowered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a discrete graphics card."""
    original = device.Device.memory_type

    def hidden(self: device.Device, allowed: int, *, host: bool) -> tuple[int, bool]:
        kind, visible = original(self, allowed, host=host)
        return kind, visible and host

    monkeypatch.setattr(device.Device, "memory_type", hidden)
    program = delegatekit.load(net.buffer)
    for _ in range(2):
        x = torch.randn(3, 4)
        close(program["forward"](x), x)


def test_an_integer_beyond_32_bits_is_refused() -> None:
    lowered = lower(lambda x: x + 1, torch.arange(4), backend="vulkan")
    method = delegatekit.load(lowered.buffer)["forward"]
    assert method(torch.arange(4)).tolist() == [1, 2, 3, 4]
    with pytest.raises(ExecutionError, match="4294967296: the device computes in 32 bits"):
        method(torch.tensor([0, 1, 2, 1 << 32]))


def test_a_lost_device_is_an_error_and_the_next_load_works(net: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    program = delegatekit.load(net.buffer)
    method = program["forward"]
    vk = binding.vulkan()
    x = torch.randn(3, 4)
    close(method(x), x)

    def lost(*_: object) -> None:
        raise vk.VkErrorDeviceLost

    with monkeypatch.context() as patch:
        patch.setattr(vk, "vkQueueSubmit", lost)
        with pytest.raises(ExecutionError, match="VkErrorDeviceLost"):
            method(x)
    close(delegatekit.load(net.buffer)["forward"](x), x)


def test_too_little_memory_is_an_error(net: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    vk = binding.vulkan()

    def full(*_: object) -> None:
        raise vk.VkErrorOutOfDeviceMemory

    with monkeypatch.context() as patch:
        patch.setattr(vk, "vkAllocateMemory", full)
        with pytest.raises(DelegateKitError, match="VkErrorOutOfDeviceMemory"):
            delegatekit.load(net.buffer)["forward"]
    x = torch.randn(3, 4)
    close(delegatekit.load(net.buffer)["forward"](x), x)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"DELEGATEKIT_VULKAN_DEVICE": "no such card"}, "is none of the devices (0: "),
        ({"VK_DRIVER_FILES": "/nowhere.json"}, "mesa-vulkan-drivers"),
    ],
)
def test_a_missing_device_is_unavailable_with_a_reason(variables: dict[str, str], words: str) -> None:
    code = "from delegatekit_vulkan.runtime import VulkanRuntime; print(VulkanRuntime().is_available())"
    import os

    environment = {**os.environ, **variables}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "available=False" in result.stdout and words in result.stdout


def test_a_missing_binding_is_unavailable_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['vulkan'] = None\n"
        "from delegatekit_vulkan.runtime import VulkanRuntime; print(VulkanRuntime().is_available())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "available=False" in result.stdout and "delegatekit-vulkan[runtime]" in result.stdout
