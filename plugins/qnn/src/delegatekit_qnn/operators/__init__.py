"""The operators that the backend takes, a family a file: rows with their conditions and lowering functions."""
