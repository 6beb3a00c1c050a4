"""Certificates that tests made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from delegatekit_lab.addresses import Certificates

#: Serves a board with these certificates (None: without TLS) and parts of `Board`; returns its address.
Serve: TypeAlias = Callable[..., str]


@dataclass(frozen=True)
class Files:
    """Certificates by name, of one folder."""

    folder: Path

    def __call__(self, name: str) -> Certificates:
        return Certificates(*(self.folder / file for file in (f"{name}.pem", f"{name}.key", "ca.pem")))

    def query(self, name: str) -> str:
        """The certificates as the part of an address."""
        found = self(name)
        return f"?cert={found.cert}&key={found.key}&ca={found.ca}"
