"""The version of the plugin API and the rule for which plugins this core can load."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class ApiVersion:
    """Version of the hook specifications and data types: major.minor.

    Major: something that a plugin relies on was removed or changed. Minor: a hook, an optional hook argument or an
    optional field was added.
    """

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ApiVersion:
        """Read "1.2"; raises ValueError for anything else."""
        match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text.strip())
        if match is None:
            raise ValueError(f"API version {text!r} is not of the form MAJOR.MINOR")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


#: The version that this release of delegatekit-api implements.
API_VERSION = ApiVersion(2, 5)


def incompatibility(plugin: ApiVersion, core: ApiVersion = API_VERSION) -> str | None:
    """The reason why a plugin written for API version `plugin` cannot be used by a core with `core`; None if it can.

    The majors must be equal, and the plugin's minor must not be newer than the core's: the core then offers every
    hook argument and field that the plugin may use.
    """
    if plugin.major < core.major:
        return f"speaks API {plugin}, too old for this core (API {core}): install a newer release of the plugin"
    if plugin > core:
        return f"speaks API {plugin}, too new for this core (API {core}): upgrade delegatekit and delegatekit-api"
    return None
