"""Calls a backend's compiler in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delegatekit_api import BackendOptions, PartitionProgram, PluginError

from ..plugins import LoadedBackend, check_answer
from .result import CheckedResult, check_result


def compile_here(
    backend: LoadedBackend, programs: Sequence[PartitionProgram], options: BackendOptions, places: Sequence[str]
) -> list[CheckedResult]:
    """Compile partitions in this process, all in one call if the backend wants that; `places` are their names.

    Raises whatever the backend raises, and PluginError for results of another form.
    """
    if backend.compiles_together(options):
        results = _together(backend, programs, options)
    else:
        results = [backend.preprocess(program, options) for program in programs]
    return [check_result(result, place) for result, place in zip(results, places, strict=True)]


def _together(backend: LoadedBackend, programs: Sequence[PartitionProgram], options: BackendOptions) -> list[Any]:
    """The results of `preprocess_methods`, in order. Raises PluginError for an invalid answer."""
    methods: dict[str, list[PartitionProgram]] = {}
    for program in programs:
        methods.setdefault(program.method, []).append(program)
    where = f"the partitions of methods {', '.join(methods)} for backend {backend.name}"
    results = backend.preprocess_methods(methods, options)
    check_answer(results, Mapping[str, Sequence[Any]], "what preprocess_methods returned", where)
    counts = {name: len(of_method) for name, of_method in methods.items()}
    if {name: len(of_method) for name, of_method in results.items()} != counts:
        raise PluginError("preprocess_methods did not return one result for each partition", where=where)
    waiting = {name: iter(of_method) for name, of_method in results.items()}
    return [next(waiting[program.method]) for program in programs]
