"""Qualcomm backend for DelegateKit: context binaries for the Hexagon Tensor Processor, made by Qualcomm's compiler."""
