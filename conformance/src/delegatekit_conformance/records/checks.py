"""Whether a record is what it claims to be: its form, its sums, its signature, and the wheel that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from delegatekit.plugins import discovery
from delegatekit_api import FormatError

from .. import report
from ..installed import of_plugin, of_wheel
from ..report import views
from ..run import Run
from .age import age_of
from .minisign import PublicKey, Signature, read_signature, signature_of


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `right` is None where nothing could be compared."""

    subject: str
    right: bool | None
    words: str

    def __str__(self) -> str:
        state = {True: "right", False: "WRONG", None: "open"}[self.right]
        return f"{state:5}  {self.subject}: {self.words}"


@dataclass(frozen=True)
class Record:
    """A record that was read: its file, its bytes and its run; and its signature, if there is a file of one."""

    path: Path
    data: bytes
    run: Run
    signature: Signature | None

    @property
    def signer(self) -> str:
        """The number of the key that it claims to be signed by; "" without a signature."""
        return "" if self.signature is None else self.signature.number


def read(path: Path) -> Record:
    """A record and its signature's file, of which nothing is verified. Raises FormatError if one of the two is none."""
    data, run = read_whole(path)
    beside = signature_of(path)
    return Record(path, data, run, read_signature(beside) if beside.exists() else None)


def read_whole(path: Path) -> tuple[bytes, Run]:
    """A record's bytes and its run. Raises FormatError if anything is wrong with it."""
    data = report.read_bytes(path)
    run, fault = _read(data, str(path))
    if run is None or fault:
        raise FormatError(fault, where=str(path))
    return data, run


def verify(path: Path, keys: Sequence[PublicKey] = (), wheel: Path | None = None) -> list[Finding]:
    """All that can be said about a record without a network; the record's file and its signature's are not trusted.

    Without a wheel file, the digest is compared with what is installed, where that is the same version.
    Raises FormatError if the record cannot be read at all.
    """
    data = report.read_bytes(path)
    run, fault = _read(data, str(path))
    findings = [Finding("record", not fault, fault or words(run))]
    findings.append(_signed(data, signature_of(path), keys))
    if run is not None:
        findings += _wheel(run, wheel)
    return findings


def fault_of_signature(record: Record, keys: Sequence[PublicKey]) -> tuple[PublicKey | None, str]:
    """The key of these that the record's signature is by, and what is wrong with it by that key ("" if nothing is)."""
    if record.signature is None:
        return None, ""
    key = next((key for key in keys if key.id == record.signature.id), None)
    return key, "" if key is None else record.signature.fault(record.data, key)


def _read(data: bytes, where: str) -> tuple[Run | None, str]:
    """The run of a record's bytes, if they are one, and what is wrong with them."""
    try:
        values = report.values_of(data, where)
        run = report.run_of(values, where)
    except FormatError as error:
        return None, error.what
    if report.canonical(values) != data:
        return run, "it is not in the form of records: `--record FILE` writes that, `--json` does not"
    return run, report.miscounted(values, run)


def words(run: Run | None) -> str:
    """What a record is about, in a line."""
    if run is None:
        return ""
    chosen = f"{len(run.results):,} of {run.chosen:,} chosen" if len(run.results) < run.chosen else "all chosen"
    of = f" ({chosen}, of {run.suite:,})" if run.suite else ""
    when = f"{run.started} ({age_of(run.started)})" if age_of(run.started) else "of no date"
    faults = f"{len(run.faults):,} with faults, {len(views.expected(run.results)):,} with expected ones"
    return (
        f"{run.backend.name} of {run.backend.distribution} {run.backend.version}, profile {run.profile}, "
        f"seed {run.seed}, {when}: {views.cases(len(run.results))}{of}, {faults}"
    )


def _signed(data: bytes, beside: Path, keys: Sequence[PublicKey]) -> Finding:
    def found(right: bool | None, words: str) -> Finding:
        return Finding("signature", right, words)

    if not beside.exists():
        return found(False if keys else None, f"there is no {beside.name}")
    try:
        signature = read_signature(beside)
    except FormatError as error:
        return found(False, f"{beside.name} {error.what}")
    if not keys:
        return found(None, f"by the key {signature.number}; give its public key, --key FILE, to verify it")
    key = next((key for key in keys if key.id == signature.id), None)
    if key is None:
        given = ", ".join(key.number for key in keys)
        return found(False, f"by the key {signature.number}; given was {given}")
    fault = signature.fault(data, key)
    comment = ", ".join(signature.comment.split("\t"))
    return found(not fault, fault or f"by the key {key.number} ({key.name}), {comment}")


def _wheel(run: Run, wheel: Path | None) -> Iterator[Finding]:
    def found(right: bool | None, words: str) -> Finding:
        return Finding("wheel", right, words)

    told = run.backend.installation
    of = f"{run.backend.distribution} {run.backend.version}"
    if not told.sha256:
        words = f"the record is of no wheel: {told.reason or 'it does not say what was installed'}"
        yield found(None if wheel is None else False, words)
        return
    if wheel is not None:
        try:
            given = of_wheel(wheel)
        except FormatError as error:
            yield found(False, str(error))
            return
        same = given.sha256 == told.sha256
        yield found(same, f"SHA-256 {told.sha256} of {of}" + ("" if same else f"; that of {wheel} is {given.sha256}"))
        return
    info = discovery.backends(check=False).get(run.backend.name)
    if info is None or (info.distribution, info.version) != (run.backend.distribution, run.backend.version):
        there = "not installed" if info is None else f"{info.distribution} {info.version} is installed"
        yield found(None, f"SHA-256 {told.sha256} of {of}; {there}: give the file, --wheel FILE, to compare it")
        return
    installed = of_plugin(discovery.entry_point_of(run.backend.name))
    if installed.sha256:
        same = installed.sha256 == told.sha256
        words = "as installed" if same else f"; what is installed has {installed.sha256}"
        yield found(same, f"SHA-256 {told.sha256} of {of}{',' if same else ''} {words}".replace(" ;", ";"))
    else:
        right = False if installed.state == "changed" else None
        yield found(right, f"SHA-256 {told.sha256} of {of}; what is installed is {installed.state}: {installed.reason}")
