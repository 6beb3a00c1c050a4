"""Lowers to ExecuTorch's XNNPACK delegate: CPU inference on Arm, x86, WebAssembly and RISC-V."""
