"""MLX backend for DelegateKit."""
