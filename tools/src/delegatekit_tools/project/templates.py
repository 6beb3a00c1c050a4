"""The templates of a backend's project in all their versions, as the git repositories that copier wants.

copier updates a project by what changed between two versions of its template, which it takes from tags of a repository.
The versions lie in this package: the present ones as files, earlier ones as archives.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree, unpack_archive
from typing import Final

from packaging.version import Version

_HERE: Final = Path(__file__).parent
#: Archives of earlier versions: TEMPLATE/VERSION.zip.
EARLIER: Final = _HERE / "earlier"
#: The file of a project that says which template made it, and what was answered.
ANSWERS: Final = ".delegatekit-project.yml"

_NAME: Final = "DelegateKit"


@dataclass(frozen=True)
class Template:
    """What projects of one kind are made of."""

    name: str
    #: The address that projects remember. It leads nowhere: git is told to look into the repository made here.
    address: str
    #: The version as it is now: before a released one changes, `tools/tests/freeze_template.py` keeps it.
    present: str
    #: The folders whose files it has now.
    folders: tuple[Path, ...]
    #: Whether its projects may have kernels in C.
    takes_native: bool = False

    def versions(self, earlier: Path = EARLIER) -> list[str]:
        """All versions, the oldest first."""
        folder = earlier / self.name
        found = [path.stem for path in folder.glob("*.zip")] if folder.is_dir() else []
        return [*sorted(found, key=Version), self.present]

    def unpack(self, version: str, folder: Path, earlier: Path = EARLIER) -> None:
        """Put the files of a version into a new folder."""
        if version == self.present:
            for files in self.folders:
                copytree(files, folder, dirs_exist_ok=True)
            return
        unpack_archive(earlier / self.name / f"{version}.zip", folder)

    def repository(self, folder: Path, earlier: Path = EARLIER) -> dict[str, str]:
        """A repository in a folder that does not exist yet, with a tag for each version.

        Returns the environment in which git finds it at the address. Raises OSError and subprocess.CalledProcessError
        for what git says.
        """
        _git(folder.parent, "init", "--quiet", str(folder))
        for version in self.versions(earlier):
            for path in folder.iterdir():
                if path.name != ".git":
                    rmtree(path) if path.is_dir() else path.unlink()
            files = folder.with_name(f"{folder.name}-{version}")
            self.unpack(version, files, earlier)
            copytree(files, folder, dirs_exist_ok=True)
            _git(folder, "add", "--all", "--force")
            _git(folder, "commit", "--quiet", "--allow-empty", "--message", f"Template {version}")
            _git(folder, "tag", f"v{version}")
        count = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
        return {
            "GIT_CONFIG_COUNT": str(count + 1),
            f"GIT_CONFIG_KEY_{count}": f"url.{folder}.insteadOf",
            f"GIT_CONFIG_VALUE_{count}": self.address,
            "GIT_TERMINAL_PROMPT": "0",
        }


#: The templates by name; the first is the default.
TEMPLATES: Final = {
    template.name: template
    for template in (
        # Its first projects knew it as the only one.
        Template(
            "device",
            "https://delegatekit.invalid/backend.git",
            "1.0",
            (_HERE / "common", _HERE / "device"),
            takes_native=True,
        ),
        Template("library", "https://delegatekit.invalid/library.git", "1.0", (_HERE / "common", _HERE / "library")),
    )
}
DEFAULT: Final = next(iter(TEMPLATES))


def _git(folder: Path, *arguments: str) -> None:
    identity = ("-c", f"user.name={_NAME}", "-c", "user.email=template@delegatekit.invalid")
    plain = ("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "tag.gpgSign=false")
    command = ["git", *identity, *plain, "-c", "core.autocrlf=false", *arguments]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
