"""The gallery's notebooks run from top to bottom, with small models; what they assert is part of them."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from delegatekit.plugins import get_backend

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))
#: Notebooks for another backend than XNNPACK.
BACKENDS = {"keywords": "ethosu"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    backend = get_backend(BACKENDS.get(path.stem, "xnnpack"))
    for answer in (backend.compiler_availability(), backend.runtime_availability()):
        if not answer.available:
            pytest.skip(f"{backend.name}: {answer.reason}")
    shutil.copy(GALLERY / "models.py", tmp_path)
    monkeypatch.setenv("DELEGATEKIT_GALLERY", "tiny")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "models", raising=False)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    try:
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")
            for number, cell in enumerate(cells):
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), namespace)
    finally:
        sys.modules.pop("models", None)
    assert capsys.readouterr().out.count("\n") >= len(cells) - 2


def test_there_is_a_notebook_for_each_page_of_the_gallery() -> None:
    page = (GALLERY.parents[1] / "docs" / "gallery.md").read_text("utf-8")
    assert len(NOTEBOOKS) == 6
    assert all(f"(../examples/gallery/{path.name})" in page for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_one_without_outputs(path: Path) -> None:
    content = json.loads(path.read_text("utf-8"))
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    cells = content["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells) > 5
    for cell in cells:
        assert cell["source"], "an empty cell"
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), path.name, "exec")
        else:
            assert cell["cell_type"] == "markdown" and "# %%" not in "".join(cell["source"])
    assert "".join(cells[0]["source"]).startswith("# ")
