"""The suite's own score: small changes of a backend's code, and which of them the suite finds."""
