"""The time of a method by instruction, by delegate, and by operator inside delegates."""

from __future__ import annotations

from .dump import read_etdump
from .measured import InstructionProfile, OperatorProfile, Origin, Times
from .origins import Origins
from .profile import Profile
from .recording import call_times, instruction_times, profile

__all__ = [
    "InstructionProfile",
    "OperatorProfile",
    "Origin",
    "Origins",
    "Profile",
    "Times",
    "call_times",
    "instruction_times",
    "profile",
    "read_etdump",
]
