"""The serialized delegate: its schema, its writer, its reader, and the checks before it runs."""
