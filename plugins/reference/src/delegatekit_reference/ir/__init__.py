"""The backend's own graph: steps, values, and the operators of steps. Compiling writes it, the runtime reads it."""
