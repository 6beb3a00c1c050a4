"""Families of operators: each file has their rows and lowering functions."""
