"""Errors that are ours: misuse, told apart from failure, and what Python and PyTorch raise, made into one of ours."""
