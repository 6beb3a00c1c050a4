"""Lowers programs to TOSA: the rules for each operator, the orders of axes, quantized arithmetic."""
