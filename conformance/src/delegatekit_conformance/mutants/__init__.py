"""The suite's own score: its mutation score over a backend's code."""
