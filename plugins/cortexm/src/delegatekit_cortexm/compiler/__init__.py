"""What the library says of its kernels when a program is compiled."""
