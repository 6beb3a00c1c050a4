"""Checkers: tools that watch native code or a driver while programs run, and report what no result shows.

A missing barrier, a read past an end, a race: on the machine at hand the result may still be right. Where a tool
sees such things (a driver's validation layer, a sanitizer), a vendor's file says how to switch it on, and what its
complaints look like. The file is `checkers.toml` in the package of the plugin's module:

    [[checker]]
    name = "Acme's driver in debug mode"
    environment = { ACME_DEBUG = "races,bounds" }  # set in a process of its own
    present = "acme debug layer 2"  # printed when it watches: a regular expression
    complaint = "^acme: error"  # text of a line that is a complaint: another
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import delegatekit
from delegatekit import LoweredProgram

from ... import vendor
from ...context import Context
from ...drawing import draw
from ...strategies.graphs import graphs
from ..base import Broken, NotApplicable
from ..fresh import in_fresh_process
from ..specimens import DECODER, DYNAMIC, JOINED_SIZES, LARGE, SPECIMENS, WINDOWS, delegates, lower, runs, taken
from ..state import accumulate
from ..subjects import subject_of
from .rules import Rules

RULES = Rules()

#: The file's name in the plugin's package.
FILE: Final = "checkers.toml"
#: Programs besides the specimens: sizes that change, weights that are worth packing, and this many random graphs.
_RECIPES: Final = (DYNAMIC, WINDOWS, LARGE, JOINED_SIZES, DECODER)
_GRAPHS: Final = 6
#: Characters of a complaint that are shown.
_SHOWN: Final = 300

#: Two sessions of each program take turns, then run at once; then operators are timed, which may be done another way.
_SCRIPT = """
import threading
import torch, delegatekit

def several(method, inputs):
    for _ in range(8):
        method.run(inputs)

answer["unavailable"] = ""
from delegatekit.plugins import discovery
available = discovery.get_backend(given["backend"]).runtime_availability()
if not available.available:
    answer["unavailable"] = available.reason
for data, calls in given["programs"] if available.available else ():
    programs = [delegatekit.load(data) for _ in range(2)]
    for _ in range(2):
        for inputs in calls:
            for program in programs:
                program["forward"].run(inputs)
    threads = [threading.Thread(target=several, args=(program["forward"], calls[0])) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    delegatekit.profile(programs[0]["forward"], calls[0], runs=1, warm_up=0)
    for program in programs:
        program.close()
"""


@dataclass(frozen=True)
class Checker:
    """One entry of the file."""

    name: str
    environment: Mapping[str, str]
    #: Its output when it watches, and the text of a line that is a complaint.
    present: re.Pattern[str]
    complaint: re.Pattern[str]


def checkers_of(backend: str) -> Sequence[Checker]:
    """The checkers of a backend's file; none if its wheel has none. Raises InputError for an invalid file."""
    found = vendor.file_of(backend, FILE)
    return parse(*found) if found else ()


def parse(text: str, where: str = FILE) -> Sequence[Checker]:
    """The checkers of a file's text. Raises InputError, with `where`."""
    return vendor.entries_of(text, where, "checker", _checker, "checkers")


def _checker(name: str, environment: Mapping[str, str], present: str, complaint: str) -> Checker:
    for variable, value in environment.items():
        if not isinstance(value, str):
            raise ValueError(f"{variable} is {value!r}, not a string")
    return Checker(name, dict(environment), re.compile(present, re.MULTILINE), re.compile(complaint))


@RULES.costing(10.0)
def checkers(context: Context) -> str:
    """The vendor's checkers of native code or the driver have no complaint while programs run."""
    known = checkers_of(context.backend)
    if not known:
        raise NotApplicable(f"the vendor names no checker of native code or of a driver ({FILE})")
    runs(context)
    given = {"backend": context.backend, "programs": [_calls(*found) for found in _programs(context)]}
    missing = []
    for checker in known:
        fresh = in_fresh_process(_SCRIPT, context, given, environment=checker.environment)
        output = f"{fresh.stdout}\n{fresh.stderr}"
        complaint = next(filter(checker.complaint.search, output.splitlines()), None)
        if complaint is not None:
            raise Broken(f"{checker.name} complains: {complaint.strip()[:_SHOWN]}")
        if fresh.answer["unavailable"]:
            missing.append(f"under {checker.name} nothing runs: {fresh.answer['unavailable']}")
        elif not checker.present.search(output):
            missing.append(f"{checker.name} is not installed here: nothing is printed like {checker.present.pattern!r}")
    if len(missing) == len(known):
        raise NotApplicable("; ".join(missing))
    return "; ".join([f"{len(given['programs'])} programs without a complaint", *missing])


def _programs(context: Context) -> Iterator[tuple[LoweredProgram, Sequence[Sequence[Any]]]]:
    """Programs of which the backend takes something, and the inputs of their calls."""
    for name, program in taken(context).items():
        yield program, [SPECIMENS[name].inputs()]
    drawn = draw(graphs(), _GRAPHS, context.seed_of("contract/checkers"))
    for recipe in (*_RECIPES, *drawn):
        try:
            program = lower(recipe, context)
        except Exception:  # other rooms report it
            continue
        if delegates(program, context.backend):
            yield program, [recipe.inputs(), *map(recipe.inputs, recipe.calls)]
    subject = subject_of(*accumulate(), stateful=True)
    yield delegatekit.lower(subject.program, backends=[context.backend], options=context.by_backend), subject.calls


def _calls(program: LoweredProgram, calls: Sequence[Sequence[Any]]) -> tuple[bytes, list[list[torch.Tensor]]]:
    return bytes(program.buffer), [list(inputs) for inputs in calls]
