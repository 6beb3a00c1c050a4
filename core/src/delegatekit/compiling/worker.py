"""The compiler process, which may crash: compiles the partitions in a folder, with one backend.

    python -m delegatekit.compiling.worker FOLDER

Reads `request.json` and `constants.bin`; writes a `.result` for each partition, or `error.json` if the backend refuses
or fails. A compiler's output is not read here.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from delegatekit_toolkit.json_text import to_json

from ..edge.constants import Constants
from ..plugins import described, get_backend
from .constants import map_constants
from .hooks import compile_here
from .packed import pack
from .plain_program import PlainProgram
from .request import CONSTANTS, ERROR, Request, result_place


def main(folder: str) -> None:
    """Process the request of the folder; ends the process, with everything that the compiler started in it."""
    place = Path(folder)
    request = Request.read(place)
    _limit_memory(request.memory)
    status = 0
    try:
        programs = _programs(place, request)
        backend = get_backend(request.backend)
        options = backend.make_options(request.options)
        results = compile_here(backend, [item.program() for item in programs], options, request.places)
        for index, (result, item) in enumerate(zip(results, programs, strict=True)):
            result_place(place, index).write_bytes(pack(result, item.constants))
    except BaseException as error:
        (place / ERROR).write_text(to_json(described(error)), "utf-8")
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _programs(place: Path, request: Request) -> list[PlainProgram]:
    tensors = iter(map_constants(place / CONSTANTS, request.constants))
    counts = [len(content["constants"]) + len(content["buffers"]) for content in request.programs]
    return [
        PlainProgram(content, Constants({number: next(tensors) for number in range(count)}))
        for content, count in zip(request.programs, counts, strict=True)
    ]


def _limit_memory(limit: int | None) -> None:
    """Limit this process to this many bytes more than it has: beyond that, allocations fail."""
    if limit is None:
        return
    with suppress(ImportError, OSError, ValueError):
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + limit, now + limit))


if __name__ == "__main__":
    main(sys.argv[1])
