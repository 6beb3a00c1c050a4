"""The Core ML backend for DelegateKit."""
