"""MIL, Core ML's language of operators: its types, a program as a package has it, and the builder."""
