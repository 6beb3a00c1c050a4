"""A delegate's graph, as lowering builds it, the blob holds it and the runtime reads it."""
