"""The process that makes one row: `python -m delegatekit_tools.sweep.worker FOLDER JOB ROW`."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from delegatekit.plugins import fault
from delegatekit_toolkit.json_text import to_json

from .jobs import Job
from .material import Material
from .trial import try_job


def main(folder: str, job_file: str, row_file: str) -> None:
    """Read the job, and write its row."""
    job = Job(**json.loads(Path(job_file).read_text("utf-8")))
    material = Material.read(Path(folder))
    try:
        row = try_job(job, material.programs, material.samples, material.calibration)
    except Exception as error:  # a fault of the backend or of DelegateKit: the other rows continue
        traceback.print_exc()
        row = job.failed(fault(error))
    unfinished = Path(row_file).with_suffix(".part")
    unfinished.write_text(to_json(row), "utf-8")
    unfinished.replace(row_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
