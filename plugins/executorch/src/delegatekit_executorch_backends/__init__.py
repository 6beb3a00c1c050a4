"""ExecuTorch's own backends in DelegateKit: its partitioners and compilers, one backend for each."""
