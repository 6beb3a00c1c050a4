"""The commands `delegatekit serve-device` and `delegatekit lab`."""
