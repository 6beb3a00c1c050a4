"""The XNNPACK graph in memory: what a partition is lowered to, what the passes rewrite, and what the blob stores."""
