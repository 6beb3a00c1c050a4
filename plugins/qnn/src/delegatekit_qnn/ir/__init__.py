"""The graph that the vendor's compiler is given, as plain data."""
