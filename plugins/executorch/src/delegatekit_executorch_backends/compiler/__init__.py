"""ExecuTorch's partitioners and compilers: loaded when they are first used, and listened to."""
