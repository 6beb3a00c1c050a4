"""Programs in the form in which ExecuTorch's partitioners and compilers take them."""
