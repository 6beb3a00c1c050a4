"""The operators by families: each file has rows with their constraints and the functions that lower them to TOSA."""
