"""MIL, Core ML's language of operators: its types, a program in a package's form, and the builder."""
