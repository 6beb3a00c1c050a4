"""Keeps the present version of each template of `delegatekit new` as an archive, before it changes: projects made by it
can be updated.

    python tools/tests/freeze_template.py            # when a release was made: .../project/earlier/TEMPLATE/VERSION.zip
    python tools/tests/freeze_template.py FOLDER     # elsewhere

The same files give the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from delegatekit_tools.project.templates import EARLIER, TEMPLATES, Template


def freeze(template: Template, folder: Path) -> Path:
    """Write the files of a template's present version into an archive, TEMPLATE/VERSION.zip in this folder."""
    archive = folder / template.name / f"{template.present}.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        files = Path(place, "files")
        template.unpack(template.present, files)
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(files).as_posix(), date_time=(2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())
    return archive


if __name__ == "__main__":
    for item in TEMPLATES.values():
        freeze(item, Path(*sys.argv[1:] or [EARLIER]))
