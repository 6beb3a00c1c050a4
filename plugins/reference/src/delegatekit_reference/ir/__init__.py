"""The backend's own graph: steps, values, and what a step may call. Compiling writes it, the runtime reads it."""
