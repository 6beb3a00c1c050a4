"""What lowering to TOSA needs for this compiler alone: the rest is the toolkit's."""
