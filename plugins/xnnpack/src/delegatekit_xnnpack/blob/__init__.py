"""The serialized delegate: its schema, writer and reader, and the checks before it runs."""
