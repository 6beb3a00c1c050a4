"""Qualcomm's compiler, in processes of its own."""
