"""Signatures in the format of minisign, so that its program verifies ours, and we verify what it signs.

The format is https://jedisct1.github.io/minisign/: Ed25519 over BLAKE2b of the file ("ED"; "Ed" of older
programs is over the file itself), and a second signature over the first one and the trusted comment.
`cryptography` does the arithmetic.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delegatekit.files import open_file, write_text
from delegatekit_api import FormatError

from ..errors import InputError
from ..installed import SIGNATURE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

#: The largest key file or signature that is read; minisign's comments have at most 8192 bytes.
_LARGEST: Final = 1 << 14
#: Names of algorithms: a signature of a file, of a file's BLAKE2b, scrypt, no password, BLAKE2b.
_WHOLE, _HASHED, _SCRYPT, _OPEN, _BLAKE = b"Ed", b"ED", b"Sc", b"\0\0", b"B2"
_COMMENT: Final = "untrusted comment: "
_TRUSTED: Final = "trusted comment: "
#: The parts of a secret key's file in bytes: algorithms, salt, limits of scrypt, key id, secret key, checksum.
_SALT, _LIMIT, _ID, _SECRET, _SUM = 32, 8, 8, 64, 32
#: libsodium's limits for sensitive data, which minisign asks for: 1 GiB of memory.
_OPERATIONS, _MEMORY = 33554432, 1073741824


@dataclass(frozen=True)
class PublicKey:
    """A key that verifies. `name` is that of its file, for people."""

    id: bytes
    key: bytes
    name: str = ""

    @property
    def number(self) -> str:
        """The key's id as minisign prints it."""
        return _number(self.id)

    @property
    def text(self) -> str:
        """The content of its file."""
        return _block(f"minisign public key {self.number}", _WHOLE + self.id + self.key)


@dataclass(frozen=True)
class SecretKey:
    """A key that signs."""

    id: bytes
    seed: bytes = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The key that verifies what this one signs."""
        return PublicKey(self.id, _private(self.seed).public_key().public_bytes_raw())


@dataclass(frozen=True)
class Signature:
    """A signature as it stands in its file."""

    algorithm: bytes
    id: bytes
    signature: bytes
    comment: str
    whole: bytes
    #: The content of its file.
    data: bytes

    @property
    def number(self) -> str:
        """The id of the key, as minisign prints it."""
        return _number(self.id)

    def fault(self, data: bytes, key: PublicKey) -> str:
        """What is wrong with it as a signature of the data by this key; "" if nothing is."""
        if self.id != key.id:
            return f"it is by the key {self.number}, and this is {key.number}"
        if not _is_signed(key, self.signature, _message(data, self.algorithm)):
            return f"it does not fit the file: one of the two was changed, or the key {key.number} is another one"
        if not _is_signed(key, self.whole, self.signature + self.comment.encode()):
            return "its trusted comment was changed"
        return ""


# -- keys ------------------------------------------------------------------------------------------------------------


def new_key() -> SecretKey:
    """A new key pair."""
    return SecretKey(secrets.token_bytes(_ID), secrets.token_bytes(32))


def write_key(path: Path, password: str = "") -> Path:
    """Write a new key pair: the secret key to a new file at `path`, the other one beside it; returns that one's path.

    With a password the secret key is encrypted. Only the owner may read its file. Raises InputError if one of
    the two files is there.
    """
    public = path.with_suffix(".pub")
    if public == path:
        raise InputError("is the name of a public key", where=str(path), hint="name the secret key: lab.key")
    for file in (path, public):
        if os.path.lexists(file):
            raise InputError("exists; a key is never overwritten", where=str(file), hint="choose another name")
    key = new_key()
    secret = _block("minisign encrypted secret key", _sealed(key, password))
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    try:
        with os.fdopen(handle, "wb") as writer:
            writer.write(secret.encode())
        write_text(public, key.public.text)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    return public


def read_public_key(path: Path) -> PublicKey:
    """The key in a `.pub` file. Raises FormatError."""
    data = _decoded(_content(path, "public key")[1], 1, str(path), "public key")
    if len(data) != 2 + _ID + 32 or data[:2] != _WHOLE:
        hint = "this is a secret key: give the .pub file" if len(data) > 2 + _ID + 32 else None
        raise FormatError("is no public key of minisign", where=str(path), hint=hint)
    return PublicKey(data[2 : 2 + _ID], data[2 + _ID :], path.stem)


def read_secret_key(path: Path, ask: Callable[[], str]) -> SecretKey:
    """The key in a secret key's file; `ask` returns its password, and is called if it has one. Raises FormatError."""
    data = _decoded(_content(path, "secret key")[1], 1, str(path), "secret key")
    head = 6 + _SALT + 2 * _LIMIT
    if len(data) != head + _ID + _SECRET + _SUM or data[:2] != _WHOLE or data[4:6] != _BLAKE:
        hint = "this is a public key: give the secret one" if len(data) == 2 + _ID + 32 else None
        raise FormatError("is no secret key of minisign", where=str(path), hint=hint)
    kind, salt, body = data[2:4], data[6 : 6 + _SALT], data[head:]
    operations, memory = (
        int.from_bytes(data[6 + _SALT + start : 6 + _SALT + start + _LIMIT], "little") for start in (0, _LIMIT)
    )
    if kind == _SCRYPT:
        body = _mixed(body, _stream(ask(), salt, operations, memory, str(path)))
    elif kind != _OPEN:
        raise FormatError("its secret key is encrypted in a way that is not known", where=str(path))
    number, secret, told = body[:_ID], body[_ID : _ID + _SECRET], body[_ID + _SECRET :]
    if kind == _SCRYPT and not hmac.compare_digest(told, _sum(number, secret)):
        raise FormatError("the password is wrong, or the file is damaged", where=str(path))
    key = SecretKey(number, secret[:32])
    if key.public.key != secret[32:]:
        raise FormatError("is damaged: its two halves are of different keys", where=str(path))
    return key


def _sealed(key: SecretKey, password: str) -> bytes:
    secret = key.seed + key.public.key
    if not password:
        return _WHOLE + _OPEN + _BLAKE + bytes(_SALT + 2 * _LIMIT) + key.id + secret + bytes(_SUM)
    salt = secrets.token_bytes(_SALT)
    limits = _OPERATIONS.to_bytes(_LIMIT, "little") + _MEMORY.to_bytes(_LIMIT, "little")
    body = key.id + secret + _sum(key.id, secret)
    return (
        _WHOLE + _SCRYPT + _BLAKE + salt + limits + _mixed(body, _stream(password, salt, _OPERATIONS, _MEMORY, "key"))
    )


def _stream(password: str, salt: bytes, operations: int, memory: int, where: str) -> bytes:
    """The bytes that a secret key is mixed with: scrypt, with parameters as libsodium derives them from its limits."""
    if not 2**15 <= operations <= _OPERATIONS or not 2**20 <= memory <= _MEMORY:
        raise FormatError(
            f"asks for {operations} operations and {memory} bytes: {_OPERATIONS} and {_MEMORY} are the most",
            where=where,
        )
    most = operations // 32 if operations < memory // 32 else memory // 1024
    exponent = next(power for power in range(1, 64) if 1 << power > most // 2)
    parallel = 1 if operations < memory // 32 else max(1, (operations // 4 >> exponent) // 8)
    scrypt = _library("cryptography.hazmat.primitives.kdf.scrypt").Scrypt
    size = _ID + _SECRET + _SUM
    try:
        found: bytes = scrypt(salt=salt, length=size, n=1 << exponent, r=8, p=parallel).derive(password.encode())
    except MemoryError:
        raise FormatError(f"the password needs {memory >> 20} MiB of memory", where=where) from None
    return found


def _sum(number: bytes, secret: bytes) -> bytes:
    return hashlib.blake2b(_WHOLE + number + secret, digest_size=_SUM).digest()


def _mixed(data: bytes, stream: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


# -- signatures ------------------------------------------------------------------------------------------------------


def sign(data: bytes, key: SecretKey, name: str) -> str:
    """The content of the signature's file for a file of this name."""
    private = _private(key.seed)
    comment = f"timestamp:{int(time.time())}\tfile:{_one_line(name)}\thashed"
    signature = private.sign(_message(data, _HASHED))
    whole = private.sign(signature + comment.encode())
    first = _block(f"signature of delegatekit conform, key {_number(key.id)}", _HASHED + key.id + signature)
    return f"{first}{_TRUSTED}{comment}\n{base64.b64encode(whole).decode()}\n"


def read_signature(path: Path) -> Signature:
    """A signature's file. Raises FormatError."""
    content, lines = _content(path, "signature")
    data = _decoded(lines, 1, str(path), "signature")
    if len(data) != 2 + _ID + 64 or data[:2] not in (_WHOLE, _HASHED):
        raise FormatError("is no signature of minisign", where=str(path))
    if len(lines) < 4 or not lines[2].startswith(_TRUSTED):
        raise FormatError("is cut off: it has no trusted comment", where=str(path))
    whole = _decoded(lines, 3, str(path), "signature")
    if len(whole) != 64:
        raise FormatError("is no signature of minisign", where=str(path))
    comment = lines[2].removeprefix(_TRUSTED)
    return Signature(data[:2], data[2 : 2 + _ID], data[2 + _ID :], comment, whole, content)


def signature_of(record: Path) -> Path:
    """The file of a record's signature: its name, and `.minisig`."""
    return record.with_name(record.name + SIGNATURE)


def _message(data: bytes, algorithm: bytes) -> bytes:
    return data if algorithm == _WHOLE else hashlib.blake2b(data).digest()


def _is_signed(key: PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        _public(key.key).verify(signature, message)
    except _library("cryptography.exceptions").InvalidSignature:
        return False
    return True


# -- files and the library -------------------------------------------------------------------------------------------


def _block(comment: str, data: bytes) -> str:
    return f"{_COMMENT}{comment}\n{base64.b64encode(data).decode()}\n"


def _number(key: bytes) -> str:
    return f"{int.from_bytes(key, 'little'):016X}"


def _one_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _content(path: Path, what: str) -> tuple[bytes, list[str]]:
    """The bytes of a file, and its lines."""
    with open_file(path) as file:
        data = file.read(_LARGEST + 1)
    try:
        lines = data.decode().split("\n") if len(data) <= _LARGEST else []
    except UnicodeDecodeError:
        lines = []
    if not lines or not lines[0].startswith(_COMMENT):
        raise FormatError(f"is no {what} of minisign: it does not begin with {_COMMENT.strip()!r}", where=str(path))
    return data, [line.removesuffix("\r") for line in lines]


def _decoded(lines: list[str], number: int, where: str, what: str) -> bytes:
    try:
        return base64.b64decode(lines[number], validate=True)
    except (IndexError, binascii.Error, ValueError):
        raise FormatError(f"is no {what} of minisign: line {number + 1} is not base64", where=where) from None


def _private(seed: bytes) -> Ed25519PrivateKey:
    found: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(seed)
    return found


def _public(key: bytes) -> Ed25519PublicKey:
    found: Ed25519PublicKey = _ed25519().Ed25519PublicKey.from_public_bytes(key)
    return found


def _ed25519() -> Any:
    return _library("cryptography.hazmat.primitives.asymmetric.ed25519")


def _library(module: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise InputError(
            "keys and signatures need the package cryptography",
            hint="pip install 'delegatekit-conformance[records]'",
        ) from None
