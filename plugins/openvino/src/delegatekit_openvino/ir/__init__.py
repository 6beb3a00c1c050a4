"""The model under construction, and the types and sizes of its values."""
