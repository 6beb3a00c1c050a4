"""TOSA graphs with floating-point numbers: element types, and the builder that lowering functions write with."""
