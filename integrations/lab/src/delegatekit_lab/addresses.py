"""Addresses of boards, and the certificates of both sides: `tls://HOST:PORT`, and `tcp://HOST:PORT` on one machine."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from delegatekit_api import OptionError

#: Environment variables with the files of a user's certificate, its key, and the CA that signed the boards'.
VARIABLES: Final = {name: f"DELEGATEKIT_LAB_{name.upper()}" for name in ("cert", "key", "ca")}
_MAKE: Final = "`delegatekit lab certificates FOLDER` makes a CA and certificates"


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: this side's certificate, its key, and the CA that signs the other side's."""

    cert: Path
    key: Path
    ca: Path

    @classmethod
    def of(cls, files: Mapping[str, str | Path | None], names: Mapping[str, str]) -> Certificates | None:
        """Those of these files, None without any. Raises OptionError, with names of options, if some are missing."""
        missing = [names[name] for name in ("cert", "key", "ca") if not files.get(name)]
        if len(missing) == len(VARIABLES):
            return None
        if missing:
            raise OptionError(f"{', '.join(missing)}: all three files are needed", hint=_MAKE)
        return cls(*(Path(str(files[name])) for name in ("cert", "key", "ca")))

    def context(self, *, server: bool) -> ssl.SSLContext:
        """TLS 1.3 that takes no other side without a certificate of the CA. Raises OptionError for unusable files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        if server:  # a connection says nothing unasked, so that a user sees its end
            context.num_tickets = 0
        for path in (self.cert, self.key, self.ca):
            if not path.is_file():
                raise OptionError("does not exist", where=str(path), hint=_MAKE)
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ValueError) as error:
            raise OptionError(f"is no certificate with the key {self.key}: {error}", where=str(self.cert)) from error
        try:
            context.load_verify_locations(self.ca)
        except (OSError, ValueError) as error:
            raise OptionError(f"is no certificate of a CA: {error}", where=str(self.ca)) from error
        return context


@dataclass(frozen=True)
class Address:
    """Where a board's server is, and the user's certificates for it; without any, the server is on this machine."""

    host: str
    port: int
    certificates: Certificates | None

    @classmethod
    def of(cls, text: str) -> Address:
        """The address `SCHEME://HOST:PORT`; `?cert=FILE&key=FILE&ca=FILE` go before the environment's certificates.

        Raises OptionError.
        """
        try:
            parts = urlsplit(text)
            host, port, query = (
                parts.hostname or "",
                parts.port,
                dict(parse_qsl(parts.query, strict_parsing=bool(parts.query))),
            )
        except ValueError as error:
            raise OptionError(f"{text!r} is no address: {error}", hint="tls://HOST:PORT") from None
        known = parts.scheme in ("tls", "tcp") and host and port and parts.path in ("", "/")
        if not known or query.keys() - VARIABLES.keys() or parts.username is not None:
            raise OptionError(f"{text!r} is no address of a board", hint="tls://HOST:PORT")
        if parts.scheme == "tcp":
            if not is_loopback(host):
                raise OptionError(f"{text!r} is on another machine, and tcp:// is not encrypted", hint="use tls://")
            return cls(host, port or 0, None)
        for variable in VARIABLES.values():  # processes of this one may work in other folders
            if os.environ.get(variable):
                os.environ[variable] = str(Path(os.environ[variable]).absolute())
        files = {name: query.get(name) or os.environ.get(variable) for name, variable in VARIABLES.items()}
        certificates = Certificates.of(files, VARIABLES)
        if certificates is None:
            raise OptionError(
                f"{text!r} needs a certificate: {', '.join(VARIABLES.values())} name its files", hint=_MAKE
            )
        return cls(host, port or 0, certificates)

    def connect(self, seconds: float) -> socket.socket:
        """A connection. Raises OSError, ssl.SSLError among them, and OptionError."""
        plain = socket.create_connection((self.host, self.port), seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(plain)
            if self.certificates is None:
                return plain
            return self.certificates.context(server=False).wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tcp' if self.certificates is None else 'tls'}://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """True if all that a host's name stands for is this machine alone."""
    try:
        found = {str(item[4][0]) for item in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ip_address(item.partition("%")[0]).is_loopback for item in found)


def keep_alive(connection: socket.socket) -> None:
    """Have the system notice a machine that is gone, within some two minutes."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
