"""The blob: an archive of a model package, written and read."""
