"""A backend whose runtime is not there: the packages that it looks for cannot be imported."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from delegatekit_api import DelegatePayload, FormatError, RuntimeUnavailableError

from ...context import Context
from ...vendor import packages_of
from ..base import Broken, NotApplicable
from ..fresh import in_fresh_process
from ..specimens import backend_of, runs, samples
from .rules import Rules

RULES = Rules()

#: Without these no backend runs, and no rule.
_OURS = ("delegatekit", "torch", "numpy", "sympy")

_SCRIPT = """
import torch, torch.export, delegatekit
from delegatekit_conformance.cases.contract.missing import asked
answer.update(asked(**given))
"""


@RULES.costing(6.0)
def missing_packages(context: Context) -> str:
    """Without a package that it imports, the runtime reports that it is not available, and gives no handle."""
    runs(context)
    payload = samples(context)[0].payload
    values = {field.name: getattr(payload, field.name) for field in fields(payload) if field.name != "as_program"}
    values["blob"] = bytes(payload.blob)
    values["named_data"] = {key: bytes(value) for key, value in payload.named_data.items()}
    given = {"context": context, "values": values}
    names = in_fresh_process(_SCRIPT, context, given | {"without": ()}, torch_free=True).answer["looked for"]
    if not names:
        raise NotApplicable("the runtime looks for no package")
    answer = in_fresh_process(_SCRIPT, context, given | {"without": names}, torch_free=True).answer
    without, refused = f"without {', '.join(names)}", answer["init"]
    if not answer["available"] and len(answer["reason"].split()) < 2:
        raise Broken(f"{without} it is not available, and the reason is {answer['reason']!r}")
    # Some of a runtime's blobs may need a package that others do not.
    is_told = refused.startswith(RuntimeUnavailableError.__name__)
    if not is_told and (refused or not answer["available"]):
        raise Broken(f"{without} init raises {refused or 'nothing'}, not {RuntimeUnavailableError.__name__}")
    return f"{'not ' if is_told else ''}available {without}"


def asked(context: Context, values: Mapping[str, Any], without: Collection[str]) -> dict[str, Any]:
    """The answers of a runtime in a fresh process without some packages, and the further packages that it imports."""
    own = packages_of(context.backend)
    runtime = backend_of(context).create_runtime()
    # None among the modules makes their import fail, also of those that were imported before.
    sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    available = runtime.is_available()
    given = {key: memoryview(value) for key, value in values["named_data"].items()}
    payload = DelegatePayload(
        **{**values, "blob": memoryview(values["blob"]), "named_data": given, "as_program": _no_file}
    )
    refused = ""
    try:
        if without:
            runtime.destroy(runtime.init(payload))
    except Exception as error:  # a plugin's own classes may raise anything: the rule judges it
        refused = f"{type(error).__name__} ({error})"
    finally:
        sys.meta_path.remove(finder)
    looked = [name for name in finder.names if name not in own and not name.startswith(_OURS)]
    return {
        "available": available.available,
        "reason": str(available.reason),
        "init": refused,
        "looked for": tuple(dict.fromkeys(name for name in looked if name not in sys.stdlib_module_names)),
    }


def _no_file(keys: Collection[str]) -> bytes:
    raise FormatError("the delegate's file is not there", where=", ".join(keys))


class _Finder:
    """Records the package of each imported module, and finds none."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Record a name."""
        self.names.append(name.partition(".")[0])
