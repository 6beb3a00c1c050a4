"""Records: runs as evidence that others can verify. Signatures, checks, what wheels carry, and a site of many."""
