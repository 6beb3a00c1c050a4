"""Arm's ML SDK Model Converter, which makes a VGF file of a TOSA file."""

from .converter import availability, convert, converter_version

__all__ = ["availability", "convert", "converter_version"]
