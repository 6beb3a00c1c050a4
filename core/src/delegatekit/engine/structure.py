"""Reads the structure of a method's inputs and outputs: pytree JSON, which must not cause imports in this process."""

from __future__ import annotations

from torch.utils._pytree import TreeSpec, treespec_loads

from ..files.trees import check_tree


def read_structure(text: str | None) -> TreeSpec | None:
    """The structure; None if there is none, or if it has unknown types: then values stay flat."""
    if not text:
        return None
    try:
        check_tree(text)
        return treespec_loads(text)
    except Exception:
        return None


def read_input_structure(text: str | None) -> TreeSpec | None:
    """The same for inputs: the arguments as a tuple, and the keyword arguments as a dict."""
    structure = read_structure(text)
    if structure is None or structure.type is not tuple or structure.num_children != 2:
        return None
    arguments, keywords = structure.children()
    fits = arguments.type is tuple and keywords.type is dict and isinstance(keywords.context, list)
    return structure if fits else None
