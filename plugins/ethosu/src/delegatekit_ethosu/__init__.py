"""The Ethos-U backend for DelegateKit: quantized networks as TOSA, compiled by Arm's Vela."""
