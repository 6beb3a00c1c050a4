"""The operators by families: in each file rows with their constraints and the functions that lower them to TOSA."""
