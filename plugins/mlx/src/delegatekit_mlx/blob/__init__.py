"""The serialized delegate: its schema, container and checks, and the checksum beside it."""
