"""Notebooks of the gallery, as they follow from its scripts.

A script's cells begin with `# %%`, those of text with `# %% [markdown]` and are comments. A notebook has the same cells
and no outputs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def notebooks(folder: Path) -> dict[Path, str]:
    """Path and text of the notebook of each script of a folder that begins with a cell."""
    texts = {path: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}
    return {path.with_suffix(".ipynb"): notebook(text) for path, text in texts.items() if text.startswith("# %%")}


def notebook(script: str) -> str:
    """A script as a notebook, format 4.5 of Jupyter: JSON."""
    content = {
        "cells": [
            _cell(number, text) for number, text in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:])
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, text: str) -> dict[str, Any]:
    kind, _, source = text.partition("\n")
    source = source.strip("\n")
    if kind.strip() == "[markdown]":
        source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        return {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": _lines(source)}
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"cell-{number}",
        "metadata": {},
        "outputs": [],
        "source": _lines(source),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
