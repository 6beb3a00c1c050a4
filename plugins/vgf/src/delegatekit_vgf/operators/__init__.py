"""The operators by families: each file has rows with their constraints and the functions that lower them to TOSA.

Quantized operators are the toolkit's (`delegatekit_toolkit.tosa.lowering.operators`).
"""
