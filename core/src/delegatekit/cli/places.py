"""Where `lower` and `quantize` write: a name of the model's by default, and a second look at a name of another kind."""

from __future__ import annotations

from pathlib import Path

from .console import usage, warn


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


def question_place(output: Path, suffix: str, magic: bytes, *, offset: int = 0) -> Path:
    """The path, if it has the suffix of what is written.

    Another suffix gets a warning; it is refused if there is a file that is not of this kind (`magic` at `offset`): it
    would be replaced, and may be a source or the model itself.
    """
    if output.suffix == suffix or not output.name or output.is_dir():  # a folder is refused where it is written
        return output
    if not output.is_file():
        warn(f"--output {output} is written as a {suffix} file, but is not named so ({output.with_suffix(suffix)})")
        return output
    with output.open("rb") as file:
        if file.read(offset + len(magic))[offset:] != magic:
            usage(
                f"--output {output} exists, and is not a {suffix} file",
                f"give --output {output.with_suffix(suffix)}, or remove {output} first",
            )
    return output
