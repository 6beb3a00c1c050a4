"""The operators inside a delegate of a file, decoded by the plugin that owns it, or the reason for their absence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delegatekit.plugins import find_by_delegate_id
from delegatekit.reading import FileDelegate
from delegatekit_api import DelegateKitError
from delegatekit_api.blobs import BlobOperator


@dataclass(frozen=True)
class Insides:
    """The operators of a delegate in execution order."""

    operators: tuple[BlobOperator, ...] = ()
    #: The reason why they are not known; empty if they are.
    unknown: str = ""


def insides(delegate: FileDelegate, named_data: Mapping[str, memoryview]) -> Insides:
    """The operators inside a delegate. Imports the plugin that runs it, as `run` does; needs neither tool nor device.

    Never raises: a plugin that is missing, has no such hook, or refuses the blob is a reason in `Insides.unknown`.
    """
    try:
        backend = find_by_delegate_id(delegate.id, delegate.owner.known)
        found = backend.blob_operators(delegate.blob, list(delegate.compile_specs), named_data, delegate.method)
    except DelegateKitError as error:
        return Insides(unknown=" ".join(str(error).split()))
    if found is None:
        return Insides(unknown=f"{backend.where} does not list the operators in its blobs")
    return Insides(found)
