"""The input graph of the vendor's compiler, as plain data."""
