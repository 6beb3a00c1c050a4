"""The Vulkan backend of DelegateKit."""
