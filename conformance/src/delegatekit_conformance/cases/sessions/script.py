"""Scripts that show a fault of a sequence without the suite: they need torch and delegatekit only."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

from delegatekit_toolkit.accuracy.script import BOUND, COMPARISON

from . import pairs
from .library import Library, Wanted

_CHECK = (
    f"\n\n{BOUND}\n"
    + """

def check(answer):
    compare(answer[0], answer[1], bound)


def digest(program):
    parts = [program.buffer, *(part for name, data in program.data_files.items() for part in (name.encode(), data))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:16]


os.environ["DELEGATEKIT_COMPILED"] = "off"
folder = Path(tempfile.mkdtemp())
"""
)


def script_of(lines: Sequence[str], used: Iterable[Wanted]) -> str:
    """The script of a world's actions with the programs used."""
    head, _, text = inspect.getsource(pairs).partition("import copy\n")
    del head
    builds = "\n\n".join(dict.fromkeys(_source(wanted) for wanted in used))
    body = "\n".join(lines)
    imports = "import copy\nimport hashlib\nimport os\nimport tempfile\n"
    return f"{imports}{text}\n{COMPARISON}\n\n{builds}{_CHECK}{body}\n"


def orders_script(lowerings: Sequence[tuple[Wanted, str]]) -> str:
    """The script that lowers programs, and in a separate process the same from the last one on."""
    body = "".join(f'    ("{wanted.name}", lambda: {how}),\n' for wanted, how in lowerings)
    return script_of([f"programs = [\n{body}]", *_ORDERS.splitlines()], [wanted for wanted, _ in lowerings])


_ORDERS = """\
back = len(sys.argv) > 1
found = {name: digest(lower()) for name, lower in (programs[::-1] if back else programs)}
print("from the last one on:" if back else "in order:", {name: found[name] for name, _ in programs})
if not back:
    import subprocess

    subprocess.run([sys.executable, __file__, "back"], check=True)
"""


def lowering(wanted: Wanted, library: Library, *more: str) -> str:
    """The expression that lowers a program; `more` are further entries of the options."""
    options = [f"{name!r}: {value!r}" for name, value in library.options_of(wanted).items()]
    arguments = f"backends={list(library.backends)}"
    if library.backends and (options or more):
        arguments += f', options={{"{library.backends[0]}": {{{", ".join((*options, *more))}}}}}'
    if wanted.external:
        arguments += ", external=True"
    return f"delegatekit.lower(export({wanted.kind.build.__name__}, {wanted.seed}), {arguments})"


def _source(wanted: Wanted) -> str:
    text = inspect.getsource(wanted.kind.build)
    return text[text.index("def ") :]
