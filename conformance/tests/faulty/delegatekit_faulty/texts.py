"""Faults that interpret a text of the payload as more than a text: code, a module, a library, a file, a command."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from delegatekit_api import CompileSpec

from .fault import Wrapped, fault


def _text(value: bytes, use: Callable[[bytes], Any]) -> Callable[[Any, str], Any]:
    """The change of a backend whose compiler writes a compile spec, and whose runtime does something with it."""

    def change(sound: Any, part: str) -> Any:
        if part == "preprocess":

            def preprocess(partition: Any, options: Any) -> Any:
                result = sound(partition=partition, options=options)
                return replace(result, compile_specs=(*result.compile_specs, CompileSpec("plan", value)))

            return preprocess

        class Runtime(Wrapped):
            def init(self, payload: Any) -> Any:
                for spec in payload.compile_specs:
                    if spec.key == "plan":
                        use(bytes(spec.value))
                return self._sound.init(payload)

        return Runtime(sound)

    return change


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _a_plan_is_evaluated(sound: Any, part: str) -> Any:
    """The plan in a compile spec is read by `eval`."""
    return _text(b"[(0, 1), (1, 2)]", lambda text: eval(text.decode()))(sound, part)


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _a_plan_is_unpickled(sound: Any, part: str) -> Any:
    """The plan in a compile spec is a pickle."""
    return _text(pickle.dumps({"steps": [1, 2, 3]}), pickle.loads)(sound, part)


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _a_module_of_the_plan_is_imported(sound: Any, part: str) -> Any:
    """The compile spec names the module with the kernels, without any check."""

    def use(text: bytes) -> None:
        with suppress(ImportError, ValueError, TypeError):
            importlib.import_module(text.decode().strip())

    return _text(b"colorsys", use)(sound, part)


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _a_command_is_made_of_the_plan(sound: Any, part: str) -> Any:
    """The name of the plan is put into a shell's command."""
    return _text(b"fast", lambda text: os.system(f"true --plan {text.decode()} 2>/dev/null"))(sound, part)


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _the_plan_names_a_file(sound: Any, part: str) -> Any:
    """The plan is read from the file that the compile spec names."""

    def use(text: bytes) -> None:
        with suppress(OSError, ValueError):
            Path(text.decode()).read_bytes()

    return _text(b"plan.json", use)(sound, part)


@fault("preprocess and runtime", "contract/texts-are-only-text")
def _the_plan_names_a_library(sound: Any, part: str) -> Any:
    """The compile spec names the library that is loaded."""

    def use(text: bytes) -> None:
        with suppress(OSError, ValueError):
            ctypes.CDLL(text.decode())

    return _text(b"libm.so.6", use)(sound, part)


@fault("runtime", "contract/texts-are-only-text")
def _dtypes_of_the_blob_are_evaluated(sound: Any) -> Any:
    """The dtypes in the blob, after its checksum, become torch's by `eval`."""

    class Runtime(Wrapped):
        def init(self, payload: Any) -> Any:
            handle = self._sound.init(payload) if b"float32" in bytes(payload.blob) else None
            for dtype, *_ in json.loads(bytes(payload.blob)[24:])["inputs"]:
                eval(f"torch.{dtype}", {"torch": torch})
            return handle if handle is not None else self._sound.init(payload)

    return Runtime(sound)
