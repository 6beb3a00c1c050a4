"""The corpus of a backend: recipes beside its plugin that reach code that drawn examples rarely do.

`mutants.search` finds them by the plugin's own code; the room `corpus` of the suite tries them. The file is JSON: lists
of recipes by subject, which is an operator and a dtype ("aten.add.Tensor/float32"), an operator that a scheme quantizes
("quantized/aten.add.Tensor/int8"), or "graphs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeAlias

import torch

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import parse_object, to_json

from . import vendor
from .errors import InputError
from .recipe import Recipe, Ref, Size, Step, TensorRecipe

#: The file's name, beside the module of a plugin.
FILE = "corpus.json"
#: Version of the layout of the file.
FORMAT = 1
#: The subject of random graphs, and the prefix of quantized operators' subjects.
GRAPHS = "graphs"
QUANTIZED = "quantized/"
#: A recipe whose text is longer is left out: the file is for people, too.
_LONGEST = 4096

_CLASSES = {"tensor": TensorRecipe, "step": Step, "size": Size, "recipe": Recipe, "ref": Ref}
_NAMES = {cls: name for name, cls in _CLASSES.items()}
#: Types of torch constants that arguments may be.
_CONSTANTS = (torch.dtype, torch.memory_format, torch.layout)


#: The recipes by subject.
Corpus: TypeAlias = Mapping[str, Sequence[Recipe]]


def load(backend: str) -> Corpus:
    """The corpus in a backend's wheel; an empty one if it has none. Raises InputError if the file is not a corpus."""
    found = vendor.file_of(backend, FILE)
    return parse(*found) if found else {}


def parse(text: str, where: str = FILE) -> Corpus:
    """The corpus in a file's text. Raises InputError, with `where`, for anything else."""
    try:
        values = parse_object(text.encode(), where)
        if values.get("format") != FORMAT:
            raise InputError(f"its format is {values.get('format')!r}, and not {FORMAT}", where=where)
        return {subject: tuple(map(_recipe, found)) for subject, found in values["recipes"].items()}
    except FormatError as error:
        raise InputError(f"is no corpus: {error.what}", where=where) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"is no corpus: {type(error).__name__}: {error}", where=where) from error


def written(corpus: Corpus) -> str:
    """The file's text: a recipe a line."""
    parts = []
    for subject, recipes in sorted(corpus.items()):
        lines = ",\n".join(to_json(encoded(recipe), indent=None, compact=True) for recipe in recipes)
        parts.append(f"{to_json(subject, indent=None)}: [\n{lines}\n]")
    return f'{{"format": {FORMAT}, "recipes": {{\n' + ",\n".join(parts) + "\n}}\n"


def is_short(recipe: Recipe) -> bool:
    """True if the file can have a recipe, and its text is not too long."""
    try:
        text = to_json(encoded(recipe), indent=None, compact=True)
        return len(text) <= _LONGEST and decoded(parse_object(text.encode(), FILE)) == recipe
    except (FormatError, TypeError, ValueError):
        return False


def _recipe(value: Any) -> Recipe:
    found = decoded(value)
    if not isinstance(found, Recipe):
        raise TypeError(f"{found!r} is no recipe")
    return found


def encoded(value: Any) -> Any:
    """A recipe, or a part of it, as JSON: a value that JSON lacks is an object with one key, its type.

    >>> encoded(("x", torch.int8, float("inf"), Ref("y")))
    ['x', {'torch': 'int8'}, {'float': 'inf'}, {'ref': {'name': 'y'}}]
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else {"float": str(value)}
    if isinstance(value, tuple):
        return [encoded(item) for item in value]
    if isinstance(value, _CONSTANTS):
        return {"torch": str(value).removeprefix("torch.")}
    if type(value) in _NAMES:
        stated = ((entry, getattr(value, entry.name)) for entry in fields(value))
        parts = {
            entry.name: encoded(part) for entry, part in stated if entry.default is MISSING or part != entry.default
        }
        return {_NAMES[type(value)]: parts}
    raise TypeError(f"a recipe of the corpus cannot have {value!r}")


def decoded(value: Any) -> Any:
    """The inverse of `encoded`. Raises TypeError, ValueError, KeyError or AttributeError for anything else."""
    if isinstance(value, list):
        return tuple(decoded(item) for item in value)
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "torch":
        found = getattr(torch, content)
        if not isinstance(found, _CONSTANTS):
            raise TypeError(f"torch.{content} is no dtype, layout or memory format")
        return found
    return _CLASSES[kind](**{name: decoded(part) for name, part in content.items()})
