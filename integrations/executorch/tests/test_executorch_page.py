"""The page "You have ExecuTorch code": its code runs, and its difference is three lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from pipelines import close

import delegatekit

PAGE = Path(__file__).parents[3] / "docs" / "executorch.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, str(PAGE), "exec"), names)  # the page's own code
    result = delegatekit.load(tmp_path / "model.pte")["forward"](names["x"])
    program = torch.export.export(names["model"], (names["x"],))
    close(result, names["model"](names["x"]), "vulkan", program)
    delegates = delegatekit.inspect(tmp_path / "model.pte").methods[0].delegates
    assert [delegate.id for delegate in delegates] == ["VulkanBackend"]
    assert (tmp_path / "model_int8.pte").exists()
    assert torch.is_tensor(result)


def test_three_lines_change() -> None:
    (difference,) = blocks("diff")
    lines = difference.splitlines()
    assert sum(line.startswith("+") for line in lines) == 3
    after = [line[1:] for line in lines if line and not line.startswith("-")]
    code = blocks("python")[0].splitlines()
    assert [line for line in after if line.strip()] == [
        line for line in code if line.strip() and not line.startswith(("model =", "x ="))
    ]
