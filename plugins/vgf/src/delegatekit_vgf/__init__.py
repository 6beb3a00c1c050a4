"""The VGF backend for DelegateKit: float and quantized networks as TOSA, converted by Arm's model converter."""
