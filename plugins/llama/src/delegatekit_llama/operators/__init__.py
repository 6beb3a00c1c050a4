"""The operators that the backend takes, a file for each family."""
