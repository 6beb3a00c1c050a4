"""Output paths of commands: by default the model's name, and a check for names of another kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from .console import usage, warn

if TYPE_CHECKING:
    from ..files import Kind


#: Names of functions that say nothing of the model: the file is named as their module.
_SAYS_NOTHING: Final = frozenset({"build", "create", "forward", "get", "get_model", "load", "main", "make", "model"})


def default_place(model: str, ending: str) -> Path:
    """The file in the current folder that is named as the MODEL argument's file, function or, for "make", module is.

    >>> [str(default_place(model, ".pte")) for model in ("models/net.pt2", "models.py:unet", "package.net:make")]
    ['net.pte', 'unet.pte', 'net.pte']
    """
    source, colon, function = model.rpartition(":")
    named = function.rpartition(".")[2]
    if colon and named not in _SAYS_NOTHING:
        return Path(named + ending)
    source = source if colon else model
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
