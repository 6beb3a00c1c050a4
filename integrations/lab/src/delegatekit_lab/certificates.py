"""A small CA and certificates that it signs, for a lab's own boards and users."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import OptionError

if TYPE_CHECKING:
    from cryptography import x509

#: Days that certificates are valid.
DAYS: Final = 825
_NAME: Final = re.compile(r"[\w.@-]{1,60}")


def make(folder: Path, *, boards: Sequence[str], users: Sequence[str], days: int = DAYS) -> list[Path]:
    """Write a CA, unless the folder has one, and a certificate with its key for each board and user; returns the files.

    `boards` are "NAME=HOST,HOST" or "HOST": the hosts by which users reach the board. Raises OptionError for files
    that exist, and where `cryptography` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise OptionError(
            f"certificates need cryptography: {error}", hint="pip install 'delegatekit-lab[certificates]'"
        ) from error
    wanted = [*((*_named(text), True) for text in boards), *((user, (), False) for user in users)]
    files = [folder / f"{name}.{suffix}" for name, _, _ in wanted for suffix in ("pem", "key")]
    for name, _, _ in wanted:
        if not _NAME.fullmatch(name) or name == "ca":
            raise OptionError(f"{name!r} cannot be the name of a board or user", hint="letters, digits, dots, dashes")
    for path in files:
        if path.exists() or files.count(path) > 1:
            raise OptionError("exists already, or is asked for twice", where=str(path), hint="choose another name")
    paths = (folder / "ca.pem", folder / "ca.key")
    folder.mkdir(parents=True, exist_ok=True)
    if not any(path.exists() for path in paths):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(*paths, _signed("DelegateKit lab CA", key.public_key(), None, key, days), key)
        files = [*paths, *files]
    authority, ca_key = _authority(*paths)
    for name, hosts, is_board in wanted:
        key = ec.generate_private_key(ec.SECP256R1())
        found = _signed(name, key.public_key(), authority, ca_key, days, hosts=hosts, is_board=is_board)
        _write(folder / f"{name}.pem", folder / f"{name}.key", found, key)
    return files


def _named(text: str) -> tuple[str, tuple[str, ...]]:
    name, equals, hosts = text.partition("=")
    return name, tuple(filter(None, (hosts if equals else name).split(",")))


def _signed(
    name: str,
    public: Any,
    authority: x509.Certificate | None,
    key: Any,
    days: int,
    *,
    hosts: Sequence[str] = (),
    is_board: bool = False,
) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(_usage(is_ca=authority is None), critical=True)
    )
    if authority is not None:
        use = ExtendedKeyUsageOID.SERVER_AUTH if is_board else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([*map(_host, hosts)]), critical=False)
    return builder.sign(key, hashes.SHA256())


def _usage(*, is_ca: bool) -> x509.KeyUsage:
    from cryptography import x509

    other = (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(digital_signature=True, key_cert_sign=is_ca, crl_sign=is_ca, **dict.fromkeys(other, False))


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _authority(cert: Path, key: Path) -> tuple[x509.Certificate, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return x509.load_pem_x509_certificate(cert.read_bytes()), load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(f"the CA cannot be read: {error}", where=str(cert), hint="name another folder") from error


def _write(cert: Path, key: Path, certificate: x509.Certificate, private: Any) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    cert.write_bytes(certificate.public_bytes(Encoding.PEM))
