"""The process of `isolated`: python -I reference_process.py PATH...

A question is a TOSA file and its inputs, as the entry "tosa" and the others of an .npz file. An answer is `DONE` and
the outputs as such a file, or `REFUSED` and a text. What is imported is so within functions, for the process finds
packages only with the paths that it is given.
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


def packed(tosa: bytes, arrays: Sequence[Any]) -> bytes:
    """A program and arrays as an .npz file."""
    import numpy as np

    file = io.BytesIO()
    np.savez(file, *arrays, tosa=np.frombuffer(tosa, np.uint8))
    return file.getvalue()


def unpacked(data: bytes) -> tuple[bytes, list[Any]]:
    """The program and the arrays of such a file."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return file["tosa"].tobytes(), [file[f"arr_{number}"] for number in range(len(file.files) - 1)]


def main() -> None:
    """Answer until the input ends."""
    sys.path[:0] = sys.argv[1:]
    from delegatekit_toolkit.processes import answer

    def reply(question: bytes) -> bytes:
        try:
            return DONE + packed(b"", outputs(*unpacked(question)))
        except ValueError as error:
            return REFUSED + str(error).encode()

    answer(reply)


if __name__ == "__main__":
    main()
