"""The rules of the edge dialect: operators are rewritten into one canonical form per meaning.

A family of rules is a file; this is the list of families.
"""

from __future__ import annotations

from typing import Final

from .arithmetic import ARITHMETIC
from .attention import ATTENTION
from .complex_numbers import COMPLEX_NUMBERS
from .creation import CREATION
from .fourier import FOURIER
from .identities import IDENTITIES
from .layers import LAYERS
from .normalization import NORMALIZATION
from .pooling import POOLING
from .primitives import PRIMITIVES
from .promotion import promotion
from .quantized_operators import QUANTIZED_OPERATORS
from .recurrent import RECURRENT
from .routing import ROUTING
from .table import Family, RuleTable
from .views import VIEWS

_PLAIN: Final = RuleTable(
    (
        IDENTITIES,
        VIEWS,
        ARITHMETIC,
        CREATION,
        LAYERS,
        ATTENTION,
        NORMALIZATION,
        POOLING,
        PRIMITIVES,
        QUANTIZED_OPERATORS,
        RECURRENT,
        ROUTING,
    ),
    (COMPLEX_NUMBERS, FOURIER),
)
#: The rewrite rules of exported operators.
RULES: Final = _PLAIN.extended(promotion(_PLAIN))

__all__ = ["RULES", "Family", "RuleTable"]
