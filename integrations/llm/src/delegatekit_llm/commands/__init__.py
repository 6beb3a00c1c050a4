"""The commands `delegatekit lower-llm` and `delegatekit generate`."""
