"""The XNNPACK graph in memory: the result of lowering a partition, which passes rewrite and the blob stores."""
