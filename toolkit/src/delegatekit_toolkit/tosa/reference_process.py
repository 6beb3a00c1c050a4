"""The process of `isolated`: python -I reference_process.py PATH...

The first question is a TOSA file, each later one its inputs as an .npz file. An answer is `DONE` and the outputs as
such a file, or `REFUSED` and a text. Little is imported, since such a process starts for each program; and that
within functions, for the process finds packages only with the paths that it is given.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any, Final

DONE: Final = b"+"
REFUSED: Final = b"-"


def outputs(tosa: bytes, inputs: Sequence[Any]) -> list[Any]:
    """The outputs of the model, which trusts the file and its inputs. Raises ValueError if it refuses them."""
    import numpy as np
    import tosa_reference_model as model

    try:
        found, status = model.run(tosa, list(inputs), verbosity="NONE")
    except (ValueError, RuntimeError, TypeError) as error:
        raise ValueError(f"refuses to run: {error}") from error
    if status != model.GraphStatus.TOSA_VALID:
        raise ValueError(f"returned the status {status.name}")
    return [np.asarray(output) for output in found]


def packed(arrays: Sequence[Any]) -> bytes:
    """Arrays as an .npz file."""
    import numpy as np

    file = io.BytesIO()
    np.savez(file, *arrays)
    return file.getvalue()


def unpacked(data: bytes) -> list[Any]:
    """The arrays of an .npz file."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return [file[name] for name in file.files]


def main() -> None:
    """Answer until the input ends."""
    sys.path[:0] = sys.argv[1:]
    from delegatekit_toolkit.processes import answer

    program: list[bytes] = []

    def reply(question: bytes) -> bytes:
        if not program:
            program.append(question)
            return DONE
        try:
            return DONE + packed(outputs(program[0], unpacked(question)))
        except ValueError as error:
            return REFUSED + str(error).encode()

    answer(reply)


if __name__ == "__main__":
    main()
