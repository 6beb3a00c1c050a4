"""Large errors after a choice between nearly equal elements: a note says that they may be right."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from delegatekit_tools.sweep.jobs import planned
from delegatekit_tools.sweep.row import OutputErrors, Row
from delegatekit_tools.sweep.table import notes, text_table
from delegatekit_tools.sweep.trial import try_job


class Best(torch.nn.Module):
    def forward(self, scores: torch.Tensor, boxes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        best, index = scores.topk(2, dim=1)
        return best.sigmoid(), boxes.gather(1, index) * (boxes.amax() > 0)


def test_the_operators_that_choose_are_in_the_row() -> None:
    inputs = (torch.rand(1, 8), torch.rand(1, 8))
    programs = {"forward": torch.export.export(Best().eval(), inputs)}
    ((job,), _) = planned(["reference"], [], {}, [], "content", 1)
    row = try_job(job, programs, {"forward": [(inputs, {})]}, [])
    assert row.selecting == ("aten.topk.default",)  # what is only compared with a number chooses nothing
    assert row.sqnr is not None and row.sqnr > 100 and not any("nearly equal" in note for note in notes(row))


SCORES = OutputErrors("[0]", "float32", 10, 4, 70.7, 2e-4, 1.0)
BOXES = OutputErrors("[1]", "float32", 40, 40, -1.6, 88.0, 0.3)
CHOOSING = ("aten.topk.default", "aten.max.dim")
ROW = Row("key", "acme", "chip", "compiles", selecting=CHOOSING, outputs=(SCORES, BOXES))


@pytest.mark.parametrize(
    ("row", "command"),
    [
        (ROW, "`delegatekit compare -b acme`"),
        (replace(ROW, scheme="int8"), "`delegatekit compare -b acme --scheme int8`"),
        (replace(ROW, outputs=(OutputErrors("forward", "int64", 10, 3),)), "`delegatekit compare -b acme`"),
    ],
)
def test_large_errors_and_other_indices_may_be_another_choice(row: Row, command: str) -> None:
    note = f"topk, max may choose another of two nearly equal elements: {command} tells if that is right"
    assert notes(row)[0] == note and note in text_table([row])


@pytest.mark.parametrize("row", [replace(ROW, selecting=()), replace(ROW, outputs=(SCORES,))])
def test_without_a_choice_or_with_small_errors_there_is_no_such_note(row: Row) -> None:
    assert not any("nearly equal" in note for note in notes(row))
