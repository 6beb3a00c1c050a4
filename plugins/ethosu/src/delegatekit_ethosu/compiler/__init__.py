"""Arm's Vela, in process: a TOSA file in, commands, constants and estimates out."""

from __future__ import annotations

from .regor import Compiled, compile_program

__all__ = ["Compiled", "compile_program"]
