"""The program under construction, and its arithmetic."""
