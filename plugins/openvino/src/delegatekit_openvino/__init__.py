"""OpenVINO backend for DelegateKit."""
