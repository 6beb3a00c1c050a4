"""The blob of ExecuTorch's Vulkan delegate, written and read."""
