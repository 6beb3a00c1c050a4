"""Fetches SwiftShader, a second Vulkan driver for CPUs, and prints the path of its manifest for VK_DRIVER_FILES.

    python plugins/vulkan/tests/swiftshader.py            # unpacks into out/swiftshader, once
    python plugins/vulkan/tests/swiftshader.py FOLDER

npm fetches the package that contains it, a Chromium for servers (68 MB), and Node decompresses the archive in it.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PACKAGE: Final = "@sparticuz/chromium@147.0.0"
#: The registry's hash of this version, in base 64.
SHA512: Final = "4ZKeAQQa8up2mt675qSitztLdbQrlf8BKdC5naeap+5Mv1OV1OlJdPoU+EJC/p5sQUJUQmN4r+q5+EhaaOUHpQ=="
ARCHIVE: Final = "package/bin/swiftshader.tar.br"
MANIFEST: Final = "vk_swiftshader_icd.json"
#: Records the package that the folder's driver came from.
STAMP: Final = "sha512.txt"
FOLDER: Final = Path(__file__).parents[3] / "out" / "swiftshader"
_DECOMPRESS: Final = "process.stdout.write(require('zlib').brotliDecompressSync(require('fs').readFileSync(0)))"


def main(arguments: list[str]) -> None:
    """Fetch the driver unless the folder has it. Ends the script with one sentence if that fails."""
    folder = Path(arguments[0]) if arguments else FOLDER
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text("utf-8") != SHA512:
        fetch(folder)
    print((folder / MANIFEST).resolve())


def fetch(folder: Path) -> None:
    """Download, check and unpack. The folder is complete or absent."""
    for tool in ("npm", "node"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing and is needed to fetch SwiftShader: apt-get install npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        temporary = Path(name)
        unpack(download(temporary), temporary / "driver")
        shutil.rmtree(folder, ignore_errors=True)
        (temporary / "driver").rename(folder)


def download(folder: Path) -> Path:
    """The package as npm stores it, after checking its hash."""
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    packages = list(folder.glob("*.tgz"))
    if result.returncode or len(packages) != 1:
        sys.exit(f"npm could not fetch {PACKAGE}: {result.stderr.strip()[-500:]}")
    found = base64.b64encode(hashlib.sha512(packages[0].read_bytes()).digest()).decode()
    if found != SHA512:
        sys.exit(f"{PACKAGE} has changed: its sha512 is {found}")
    return packages[0]


def unpack(package: Path, folder: Path) -> None:
    """The driver's library and its manifest."""
    with tarfile.open(package) as outer:
        compressed = outer.extractfile(ARCHIVE)
        assert compressed is not None
        data = subprocess.run(["node", "-e", _DECOMPRESS], input=compressed.read(), capture_output=True, check=True)
    inner = package.with_suffix(".tar")
    inner.write_bytes(data.stdout)
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(inner) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)  # None for a folder
            if file is not None:
                (folder / Path(member.name).name).write_bytes(file.read())
    if not (folder / MANIFEST).exists():
        sys.exit(f"{ARCHIVE} of {PACKAGE} has no {MANIFEST}")
    (folder / MANIFEST).touch()  # make compares its time with this script's
    (folder / STAMP).write_text(SHA512, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
