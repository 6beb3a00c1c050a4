"""Output paths of commands: by default the model's name, and a check for names of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .console import usage, warn

if TYPE_CHECKING:
    from ..files import Kind


def default_place(model: str, ending: str) -> Path:
    """The file in the current folder that is named as the MODEL argument's file or module is.

    >>> str(default_place("models/net.pt2", ".pte")), str(default_place("package.net:make", "-quantized.pt2"))
    ('net.pte', 'net-quantized.pt2')
    """
    source, colon, _ = model.rpartition(":")
    if not colon:
        source = model
    name = Path(source).stem if source.endswith((".py", ".pt2")) else source.rpartition(".")[2]
    if not name:
        usage(f"MODEL {model!r} has no name for a file to write", "give --output")
    return Path(name + ending)


def question_place(option: str, output: Path | None, kind: Kind) -> None:
    """Warn of a path that has another suffix than what is written; None stands for an option not given.

    A path of a file of another kind is refused: it would be replaced, and may be a source or the model itself.
    """
    from ..files import holds_another_kind

    if output is None or output.suffix in kind.suffixes or not output.name or output.is_dir():
        return  # a folder is refused where it is written
    suffix = kind.suffixes[0]
    if holds_another_kind(output, kind):
        usage(
            f"{option} {output} exists, and is not a {suffix} file",
            f"give {option} {output.with_suffix(suffix)}, or remove {output} first",
        )
    if not output.is_file():
        warn(f"{option} {output} is written as a {suffix} file, but is not named so ({output.with_suffix(suffix)})")
