"""The operators' kernels on the host."""
