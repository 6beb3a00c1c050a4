"""A DelegateKit backend that adds and multiplies."""
