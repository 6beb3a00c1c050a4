"""Operators that a target lacks, composed of a few primitives: each once, for every backend.

    DIALECT = Dialect({"add": ..., "mul": ..., "where": ..., "exp": ...}, digits)
    asinh(DIALECT.number(builder, x)).value  # written into the builder's graph with these primitives

A backend names its primitives once; what else of `functions`, `angles` and `activations` it has itself it names there,
too, and all compositions use that.
"""

from . import activations, angles, arithmetic, functions
from .number import Dialect, Number, Primitive, Term, composition

__all__ = ["Dialect", "Number", "Primitive", "Term", "activations", "angles", "arithmetic", "composition", "functions"]
