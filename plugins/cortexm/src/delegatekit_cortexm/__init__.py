"""Arm Cortex-M backend for DelegateKit."""
