"""The delegate's blob and compile spec, as ExecuTorch's QNN delegate reads them."""
