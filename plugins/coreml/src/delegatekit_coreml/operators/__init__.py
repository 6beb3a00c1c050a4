"""Operators of the edge dialect as MIL, a file for each family."""
