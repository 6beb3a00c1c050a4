"""A delegate's graph: built by the lowering, stored in the blob and read by the runtime."""
