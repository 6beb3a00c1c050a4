"""What is inside a delegate of a file, told by the plugin that owns it: its operators, or why they are not known."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit.plugins import find_by_delegate_id
from delegatekit.pte import PteFile, schema
from delegatekit.pte.manifest import Owner
from delegatekit_api import CompileSpec, DelegateKitError
from delegatekit_api.blobs import BlobOperator


@dataclass(frozen=True)
class Insides:
    """The operators of a delegate in the order in which they run."""

    operators: tuple[BlobOperator, ...] = ()
    #: Why they are not known; empty if they are.
    unknown: str = ""


def insides(file: PteFile, delegate: schema.BackendDelegate, owner: Owner, method: str) -> Insides:
    """What is inside a delegate. Imports the plugin that runs it, as `run` does, and asks neither tool nor device.

    Never raises: a plugin that is missing, does not tell, or refuses the blob is a reason in `Insides.unknown`.
    """
    specs = [CompileSpec(str(spec.key), spec.value or b"") for spec in delegate.compile_specs or ()]
    try:
        backend = find_by_delegate_id(str(delegate.id), owner.known)
        found = backend.blob_operators(file.delegate_blob(delegate), specs, file.named_data, method)
    except DelegateKitError as error:
        return Insides(unknown=" ".join(str(error).split()))
    if found is None:
        return Insides(unknown=f"{backend.where} does not tell what is inside its blobs")
    return Insides(found)
