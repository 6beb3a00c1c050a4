"""The template of a backend's project in all its versions, as the git repository that copier wants.

copier updates a project by what changed between two versions of its template, which it takes from tags of a repository.
The versions lie in this package: the present one as files, earlier ones as archives.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from shutil import copytree, rmtree, unpack_archive
from typing import Final

from packaging.version import Version

#: The version of the template as it is now: before a released one changes, `tools/tests/freeze_template.py` keeps it.
PRESENT: Final = "1.0"
#: The files of the present template.
FILES: Final = Path(__file__).parent / "backend"
#: Archives of earlier ones, VERSION.zip.
EARLIER: Final = Path(__file__).parent / "earlier"
#: The address that projects remember. It leads nowhere: git is told to look into the repository made here.
ADDRESS: Final = "https://delegatekit.invalid/backend.git"
#: The file of a project that says which template made it, and what was answered.
ANSWERS: Final = ".delegatekit-project.yml"

_NAME: Final = "DelegateKit"


def versions(earlier: Path = EARLIER) -> list[str]:
    """All versions, the oldest first."""
    found = [path.stem for path in earlier.glob("*.zip")] if earlier.is_dir() else []
    return [*sorted(found, key=Version), PRESENT]


def unpacked(version: str, folder: Path, earlier: Path = EARLIER) -> None:
    """Put the files of a version into a new folder."""
    if version == PRESENT:
        copytree(FILES, folder)
        return
    unpack_archive(earlier / f"{version}.zip", folder)


def repository(folder: Path, earlier: Path = EARLIER) -> dict[str, str]:
    """A repository in a folder that does not exist yet, with a tag for each version.

    Returns the environment in which git finds it at the address. Raises OSError and subprocess.CalledProcessError for
    what git says.
    """
    _git(folder.parent, "init", "--quiet", str(folder))
    for version in versions(earlier):
        for path in folder.iterdir():
            if path.name != ".git":
                rmtree(path) if path.is_dir() else path.unlink()
        files = folder.with_name(f"{folder.name}-{version}")
        unpacked(version, files, earlier)
        copytree(files, folder, dirs_exist_ok=True)
        _git(folder, "add", "--all", "--force")
        _git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Template {version}")
        _git(folder, "tag", f"v{version}")
    count = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
    return {
        "GIT_CONFIG_COUNT": str(count + 1),
        f"GIT_CONFIG_KEY_{count}": f"url.{folder}.insteadOf",
        f"GIT_CONFIG_VALUE_{count}": ADDRESS,
        "GIT_TERMINAL_PROMPT": "0",
    }


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", f"user.name={_NAME}", "-c", "user.email=template@delegatekit.invalid")
    plain = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false")
    command = ["git", *identity, *plain, "-c", "core.autocrlf=false", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
