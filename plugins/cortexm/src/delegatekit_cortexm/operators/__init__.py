"""The operators that the backend takes, one file for each family."""
