"""The native library that joins delegates in Python to ExecuTorch's runtime: its source, its building, its loading."""
