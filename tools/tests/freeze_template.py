"""Keeps the present template of `delegatekit new` as an archive, before it changes: projects made by it can be updated.

    python tools/tests/freeze_template.py            # when a release was made: tools/.../project/earlier/VERSION.zip
    python tools/tests/freeze_template.py FOLDER     # elsewhere

The same files give the same bytes.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from delegatekit_tools.project.templates import EARLIER, FILES, PRESENT


def freeze(files: Path, archive: Path) -> None:
    """Write the files of a template into an archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(files).as_posix(), date_time=(2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    freeze(FILES, Path(*sys.argv[1:] or [EARLIER]) / f"{PRESENT}.zip")
