"""Runtimes on other machines: the addresses that the user names, and the distribution that speaks to such."""

from __future__ import annotations

import os
import re
from typing import Any, Final

from delegatekit_api import PluginError
from delegatekit_api.versions import PROJECT

from .declared import RUNTIME_GROUP, entry_points

#: Environment variable: where runtimes are, "NAME=SCHEME://PLACE" for one backend or "SCHEME://PLACE" for all others,
#: separated by commas.
DEVICES: Final = f"{PROJECT.upper()}_DEVICES"


def address_of(name: str) -> str | None:
    """The address of a backend's runtime; None if it is on this machine."""
    # What follows an address' "?" may have commas and signs of equality, too.
    texts = re.split(r",(?=\s*(?:[^=/,]*=)?\w+://|\s*$)", os.environ.get(DEVICES, ""))
    places = [re.fullmatch(r"\s*(?:([^=/]*)=)?(.+)", text) for text in texts]
    known = {found[1] or "": found[2].rstrip() for found in places if found}
    return known.get(name, known.get(""))


def runtime_at(backend: Any, address: str) -> Any:
    """The runtime of a loaded backend at an address. Raises PluginError if no distribution reaches such."""
    for entry_point in entry_points(RUNTIME_GROUP):
        if address.startswith(f"{entry_point.name}://"):
            return entry_point.load()(backend, address)
    raise PluginError(
        f"nothing that is installed reaches a runtime at {address!r}",
        where=f"backend {backend.name}",
        hint=f"pip install {PROJECT}-lab, for tls://HOST:PORT",
    )
