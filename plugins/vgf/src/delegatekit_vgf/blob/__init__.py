"""VGF files: the container, and the TOSA graph in its SPIR-V module."""
