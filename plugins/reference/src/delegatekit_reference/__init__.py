"""The reference backend for DelegateKit: runs its blobs with PyTorch, operator by operator."""
