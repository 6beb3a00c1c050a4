"""Compiles the shaders, for developers: `make shaders`, with glslc (Debian: apt-get install glslc).

A line `//! what it does` describes each shader. A line `//! variants: NAME ...` compiles a file for each, with NAME
defined. `numbers.glsl` has the numbers that the shaders share with the code around them (`shaders/numbers.py`), and
`sources.json`, for each compiled file, the hash of its source, which a test compares.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from delegatekit_vulkan.shaders.numbers import header

FOLDER: Final = Path(__file__).parents[1] / "src/delegatekit_vulkan/shaders"
RECORD: Final = FOLDER / "sources.json"
HEADER: Final = FOLDER / "numbers.glsl"
_OPTIONS: Final = ("--target-env=vulkan1.1", "-O", "-Werror")


def variants() -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Each compiled file's name, its source, and its definitions."""
    for source in sorted(FOLDER.glob("*.comp")):
        found = re.search(r"^//! variants: (.+)$", source.read_text("utf-8"), re.M)
        for name in found[1].split() if found else ():
            yield f"{source.stem}_{name}", source, (f"-D{name.upper()}",)
        if not found:
            yield source.stem, source, ()


def digest(source: Path, defines: tuple[str, ...]) -> str:
    """The hash of everything that determines a compiled file."""
    texts = [source.read_text("utf-8"), *(path.read_text("utf-8") for path in sorted(FOLDER.glob("*.glsl")))]
    return hashlib.sha256("\0".join((*texts, *defines, *_OPTIONS)).encode()).hexdigest()


def compile_shader(source: Path, defines: tuple[str, ...], target: Path) -> None:
    """Compile one file. Raises CalledProcessError."""
    command = ["glslc", *_OPTIONS, *defines, "-I", str(FOLDER), str(source), "-o", str(target)]
    subprocess.run(command, check=True)


def main() -> int:
    """Write the header, compile changed files, remove those without a source, and write the record."""
    HEADER.write_text(header(), "utf-8")
    known = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    record = {}
    for name, source, defines in variants():
        record[name] = digest(source, defines)
        target = FOLDER / f"{name}.spv"
        if known.get(name) != record[name] or not target.exists():
            try:
                compile_shader(source, defines, target)
            except subprocess.CalledProcessError:
                return 1
    for path in FOLDER.glob("*.spv"):
        if path.stem not in record:
            path.unlink()
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
