"""Effects of a backend on the process that uses it: imports, output, network, files, threads."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import delegatekit
from delegatekit.plugins import BACKEND_GROUP, LoadedBackend, address_of
from delegatekit_toolkit.accuracy import compare

from ...context import Context
from ...vendor import packages_of
from ..base import Broken
from ..fresh import Fresh, in_fresh_process
from ..specimens import Sample, backend_of, runs, samples, taken
from .rules import Rules

RULES = Rules()

#: CPU seconds that importing a plugin may take, on top of DelegateKit itself.
_IMPORT_SECONDS = 0.5
#: Packages that a plugin must not import before it is asked to compile or run something.
_HEAVY = ("torch", "numpy", "tensorflow", "onnx", "onnxruntime", "executorch", "transformers", "scipy", "pandas")

_IMPORTS = """
import time
import delegatekit
from delegatekit.plugins import discovery
from importlib.metadata import entry_points
entry, = [entry for entry in entry_points(group=given["group"]) if entry.name == given["backend"]][:1]
discovery.backends(check=False)
answer["listed"] = entry.module in sys.modules
before = set(sys.modules)
start = time.process_time()
backend = discovery.get_backend(given["backend"])
backend.make_options({})
answer["seconds"] = time.process_time() - start
answer["imported"] = sorted(set(sys.modules) - before)
"""


def _imports(context: Context) -> Fresh:
    return _imports_of(backend_of(context), context.backend, context.timeout)


@lru_cache(maxsize=4)
def _imports_of(backend: LoadedBackend, name: str, timeout: float) -> Fresh:
    given = {"group": BACKEND_GROUP, "backend": name}
    return in_fresh_process(_IMPORTS, Context(name, timeout=timeout), given, torch_free=True)


@RULES.costing(3.0)
def listing_imports_nothing(context: Context) -> str | None:
    """Listing the installed backends does not import the plugin."""
    if _imports(context).answer["listed"]:
        raise Broken("the plugin's module is imported before the backend is asked for")
    return None


@RULES.costing(3.0)
def describing_imports_little(context: Context) -> str:
    """Importing the plugin and asking for its description imports neither torch nor other heavy packages."""
    imported = _imports(context).answer["imported"]
    heavy = [name for name in _HEAVY if name in imported]
    if heavy:
        raise Broken(f"importing the plugin imports {', '.join(heavy)}: import them where they are needed")
    return f"{len(imported)} modules"


@RULES.costing(3.0)
def import_time(context: Context) -> str:
    """Importing the plugin takes at most 0.5 CPU seconds on top of DelegateKit itself."""
    seconds = _imports(context).answer["seconds"]
    if seconds > _IMPORT_SECONDS:  # once more: the disk may have been slow
        _imports_of.cache_clear()
        seconds = min(seconds, _imports(context).answer["seconds"])
    if seconds > _IMPORT_SECONDS:
        raise Broken(f"importing the plugin takes {seconds:.2f} CPU seconds, more than {_IMPORT_SECONDS}")
    return f"{seconds * 1000:.0f} ms"


#: Lowers, loads, runs and destroys, and records what the process has gained afterwards.
_ROAD = """
from delegatekit_conformance.cases import isolation
answer["isolated"] = isolation.isolate()

import gc, os, tempfile, threading
from pathlib import Path
import torch, torch.export, delegatekit, delegatekit_conformance.cases.specimens as specimens
torch.set_num_threads(1)

# Python processes that are forked from this one write here, too.
calls = tempfile.TemporaryFile(buffering=0)
def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
        where = arguments[0] if event.startswith("socket.get") else arguments[1]
        host = where[0] if isinstance(where, tuple) else where if event.startswith("socket.get") else "local"
        if host not in ("local", "localhost", "127.0.0.1", "::1", None):
            calls.write(f"{event} {where!r}"[:200].encode() + b"\\n")
            raise PermissionError("this process must not use the network")
sys.addaudithook(watch)

def children():
    try:
        tasks = os.listdir("/proc/self/task")
        return [Path(f"/proc/self/task/{task}/children").read_text().split() for task in tasks]
    except OSError:
        return []

before = {thread.ident for thread in threading.enumerate()}
context = given["context"]
for name in given["names"]:
    data = specimens.lower(specimens.SPECIMENS[name], context).buffer
    if given["run"]:
        program = delegatekit.load(data)
        for _ in range(2):
            program["forward"].run(specimens.SPECIMENS[name].inputs())
        program.close()
        del program
gc.collect()
from delegatekit.plugins.apart import end_all
end_all()  # the core's own
calls.seek(0)
answer["network"] = calls.read().decode().splitlines()
answer["no way out"] = isolation.attempts() if answer["isolated"] else 0
answer["threads"] = [thread.name for thread in threading.enumerate() if thread.ident not in before]
answer["children"] = sum(map(len, children()))
answer["cwd"] = os.getcwd()
"""


#: Resources that only the garbage collector closes are reported, with the line at which they were lost.
_WARNED = {"PYTHONWARNINGS": "always::ResourceWarning"}
_UNCLOSED = re.compile(r"^(?P<file>.+):\d+: ResourceWarning: (?P<what>.+)")
#: Python's message about an error that no caller gets, as in a destructor.
_IGNORED = "Exception ignored in"


def _road(context: Context) -> Fresh:
    names = tuple(taken(context))
    return _road_of(backend_of(context), names, context.backend, repr(context), _Hidden(context))


class _Hidden:
    """Carries a context past `lru_cache`: comparisons ignore it."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=4)
def _road_of(backend: LoadedBackend, names: tuple[str, ...], name: str, shown: str, hidden: _Hidden) -> Fresh:
    context = hidden.context
    here = backend.runtime_availability(apart=False if address_of(backend.name) else None)
    given = {"context": context, "names": list(names), "run": here.available}
    return in_fresh_process(_ROAD, context, given, torch_free=True, environment=_WARNED)


@RULES.costing(8.0)
def silent(context: Context) -> str | None:
    """Nothing is printed to standard output while programs are lowered, loaded and run, in any language."""
    printed = _road(context).stdout
    if printed:
        raise Broken(f"prints to standard output: {printed.strip()[:200]!r}")
    return None


@RULES.costing(8.0)
def no_network(context: Context) -> str:
    """Lowering, loading and running, and the processes that they start, use no network and work without one."""
    answer = _road(context).answer
    if answer["network"]:
        raise Broken(f"uses the network: {answer['network'][0]}")
    if answer["no way out"]:
        raise Broken(
            f"uses the network: native code, or a program that the backend starts, sent {answer['no way out']} times "
            "to another machine"
        )
    if not answer["isolated"]:
        return "no connection was tried by Python code; this system does not let the suite watch other programs"
    return "no connection was tried"


@RULES.costing(8.0)
def no_files_left(context: Context) -> str:
    """No files are left in the working, home and temporary folders; only ~/.cache may be used."""
    files = _road(context).files
    left = [file for file in files if not file.startswith("home/.cache/")]
    if left:
        raise Broken(f"leaves {len(left)} files behind: {', '.join(left[:5])}")
    return f"{len(files)} files in the cache" if files else "no files"


@RULES.costing(8.0)
def nothing_left_open(context: Context) -> str | None:
    """The plugin closes the files and sockets that it opens, and no destructor of an object raises."""
    own = {name for package in packages_of(context.backend) for name in (package, f"{package}.py")}
    for line in _road(context).stderr.splitlines():
        if line.startswith(_IGNORED):
            raise Broken(f"an error reaches no caller: {line[:200]}")
        found = _UNCLOSED.search(line)
        if found and own & set(Path(found["file"]).parts):
            raise Broken(f"leaves it to the garbage collector to close: {found['what']}, lost in {found['file']}")
    return None


@RULES.costing(8.0)
def nothing_left_running(context: Context) -> str | None:
    """After all handles are destroyed, no Python thread and no child process is left, nor after the process ended."""
    road = _road(context)
    if road.answer["threads"]:
        raise Broken(f"leaves threads running: {', '.join(road.answer['threads'])}")
    if road.answer["children"]:
        raise Broken(f"leaves {road.answer['children']} child processes running")
    if road.orphans:
        raise Broken("leaves a process running after the one that started it has ended")
    return None


_ELSEWHERE = """
import delegatekit
for name, data, inputs in given:
    answer[name] = [tensor.clone() for tensor in delegatekit.load(data)["forward"].run(inputs)]
"""


@RULES.costing(8.0)
def runs_elsewhere(context: Context) -> str:
    """A file loads and runs in a process that has not compiled it, with the same results."""
    runs(context)
    items: dict[str, Sample] = {}
    for item in samples(context):
        items.setdefault(item.name, item)
    given: list[Any] = [(name, item.data, item.recipe.inputs()) for name, item in items.items()]
    answer = in_fresh_process(_ELSEWHERE, context, given).answer
    precision = backend_of(context).compute_precision(context.options)
    for name, item in items.items():
        here = [tensor.clone() for tensor in delegatekit.load(item.data)["forward"].run(item.recipe.inputs())]
        # Other addresses may lead to other kernels and roundings.
        references = [tensor.double() if tensor.is_floating_point() else tensor for tensor in here]
        compared = compare(answer[name], references, here, precision, item.recipe.accuracy)
        if not compared.agrees:
            raise Broken(f"{name}: in another process {compared.difference}")
    return ", ".join(items)
