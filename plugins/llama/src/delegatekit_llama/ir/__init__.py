"""The operators that programs call, and those of the runtime that compute them."""
