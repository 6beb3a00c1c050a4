"""A backend whose runtime does what its blobs say, and files with one delegate of it."""

from __future__ import annotations

import handmade

from delegatekit.pte import PteImage, schema, to_bytes
from delegatekit_api import NamedData

#: A backend whose runtime executes the blob: a statement for `init`, and after a line "--", one for `execute`.
SOURCE = """
from delegatekit_api import *
import ctypes, os, signal, sys, threading, time, torch

class Strange(Exception):
    def __init__(self, one, two):
        super().__init__(one)

class Runtime:
    def is_available(self):
        {available}
        return Availability(True)

    def init(self, payload):
        first, _, second = bytes(payload.blob).decode().partition("--")
        kept = {{"payload": payload, "calls": 0, "execute": second.strip()}}
        exec(first, globals() | {{"payload": payload, "kept": kept}})
        return kept

    def execute(self, handle, inputs, outputs):
        handle["calls"] += 1
        exec(handle["execute"], globals() | handle | {{"inputs": inputs, "outputs": outputs, "kept": handle}})

    def destroy(self, handle):
        if "destroy" in handle:
            exec(handle.pop("destroy"), globals())

@hookimpl
def describe_backend():
    return BackendDescription("test", "Test", "delegatekit-test", "1.2", "runs", {described})

@hookimpl
def create_runtime():
    {create}
    return Runtime()
"""


def program(blob: str, *, named: dict[str, bytes] | None = None) -> bytes:
    """x through one delegate with this blob."""
    delegate = schema.BackendDelegate(
        "Test",
        schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 0),
        [schema.CompileSpec("level", b"\2"), schema.CompileSpec("empty", b"")],
    )
    values = [handmade.tensor([5], 0), handmade.tensor([5], 64)]
    plan = handmade.plan(values, [0], [1], [schema.DelegateCall(0, [0, 1])], delegates=[delegate])
    data = tuple(NamedData(key, value) for key, value in (named or {}).items())
    return to_bytes(PteImage((plan,), delegate_blobs=(blob.encode(),), named_data=data))
