"""The kernels of the operators in this process."""
