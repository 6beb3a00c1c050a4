"""A backend's description of itself, as plain data, and the differences between those of two runs.

The description has subjects ("option delegation", "scheme 8a8w", "row aten.add.Tensor"), each with facts. A fact is a
text, or the list of possible values ("choices"): of lists the longer is better, of two texts neither is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal, TypeAlias

from delegatekit.plugins import LoadedBackend
from delegatekit_api import BackendSpec, DelegateKitError
from delegatekit_api.schemes import QuantizationRule, TensorQuantization
from delegatekit_toolkit.json_text import to_json

from .declaration import Declaration

#: Name of a fact -> a text, or all possible values.
Facts: TypeAlias = Mapping[str, str | tuple[str, ...]]
#: Subject -> facts.
Description: TypeAlias = Mapping[str, Facts]
#: "lost": less is possible than before, or more counts as correct; "gained": the reverse; "said": other words.
Kind = Literal["lost", "gained", "said"]

#: Fields of `BackendDescription` that are stored elsewhere: as subjects of their own, and among a run's versions.
_ELSEWHERE = frozenset({"options", "version"})
#: Expected faults are the suite's own knowledge, not the backend's.
_EXPECTED = "expected:"
#: Numbers that an option may take, or refuse.
_NUMBERS: tuple[int | float, ...] = (
    -1,
    0,
    0.25,
    0.5,
    1,
    1.5,
    2,
    3,
    4,
    8,
    16,
    100,
    1000,
    1 << 16,
    1 << 31,
    1 << 41,
    1 << 64,
)


def describe(backend: LoadedBackend, options: Mapping[str, Any]) -> Description:
    """The backend's description of itself with these options.

    Facts that cannot be queried are left out: the contract's rules report them.
    """
    found: dict[str, Facts] = {}
    parts: tuple[Callable[[LoadedBackend, Mapping[str, Any]], Iterator[tuple[str, Facts]]], ...]
    parts = (_backend, _options, _targets, _schemes, _documentation)
    for part in parts:
        try:
            found.update(part(backend, options))
        except Exception:  # a plugin's own classes may raise anything
            continue
    return found


def _backend(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[tuple[str, Facts]]:
    facts: dict[str, str | tuple[str, ...]] = {
        field.name: str(getattr(backend.description, field.name))
        for field in dataclasses.fields(backend.description)
        if field.name not in _ELSEWHERE
    }
    facts["hooks"] = tuple(name for name in vars(BackendSpec) if not name.startswith("_") and backend.has(name))
    facts["requires"] = "; ".join(sorted(metadata.requires(backend.distribution) or ()))
    facts["verification"] = str(backend.verification(backend.make_options(options)))
    yield "backend", facts


def _options(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[tuple[str, Facts]]:
    for row in backend.description.options.describe():
        choices = _numbers(backend, row.name) if row.choices is None else tuple(map(str, row.choices))
        yield (
            f"option {row.name}",
            {
                "type": row.type,
                "default": to_json(row.default, indent=None),
                "choices": choices,
                "help": row.help,
            },
        )


def _numbers(backend: LoadedBackend, option: str) -> str | tuple[str, ...]:
    """The numbers that an option takes; "any" if none, as it is about something else, or all of them."""
    taken = []
    for number in _NUMBERS:
        with suppress(DelegateKitError):
            backend.make_options({option: number})
            taken.append(str(number))
    return tuple(taken) if 0 < len(taken) < len(_NUMBERS) else "any"


def _targets(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[tuple[str, Facts]]:
    for target in backend.targets():
        chosen = ", ".join(f"{name}={value}" for name, value in target.options.items())
        yield f"target {target.name}", {"summary": target.summary, "options": chosen}


def _schemes(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[tuple[str, Facts]]:
    for scheme in backend.quantization_schemes(backend.make_options(options)):
        rules: dict[str, list[str]] = {}
        for rule in scheme.rules:
            for operator in rule.operators:
                rules.setdefault(f"rule for {operator}", []).append(_rule(rule))
        yield (
            f"scheme {scheme.name}",
            {
                "summary": scheme.summary,
                "kind": scheme.kind,
                "training": str(scheme.qat),
                "takes apart": scheme.takes_apart,
                **{name: "; or ".join(words) for name, words in rules.items()},
            },
        )


def _rule(rule: QuantizationRule) -> str:
    tensors = {"input": rule.input, "weight": rule.weight, "bias": rule.bias, "output": rule.output}
    words = [f"{name} {_tensor(tensor)}" for name, tensor in tensors.items() if tensor is not None]
    words += [name for name in ("shares", "follows", "numbers") if getattr(rule, name)]
    words += [f"with {name}" for name in rule.fused]
    words += [f"unless {getattr(decline, '__name__', 'declined')}" for decline in rule.declines]
    return ", ".join(words)


def _tensor(tensor: TensorQuantization) -> str:
    low, high = tensor.range
    return f"{tensor} [{low}, {high}] by {tensor.observer}, at least {tensor.eps!r}"


def _documentation(backend: LoadedBackend, options: Mapping[str, Any]) -> Iterator[tuple[str, Facts]]:
    page = backend.documentation()
    yield "page", dict(page.sections)
    if page.operators is None:
        return
    yield "table", {"columns": page.operators.columns, "conditions of all": " ".join(page.operators.common)}
    for entry in page.operators.entries:
        conditions = dict(zip(page.operators.columns, entry.conditions, strict=True))
        yield f"row {entry.operator}", conditions | {"whole": str(entry.whole), "passenger": str(entry.passenger)}


# -- two of them -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alteration:
    """One changed fact of a backend's description."""

    kind: Kind
    subject: str
    old: str
    new: str
    #: The fact of the subject.
    what: str = ""

    def __str__(self) -> str:
        return f"{self.subject}: {self.what}: {self.old} -> {self.new}"


@dataclass(frozen=True)
class Saying:
    """All of a backend's claims: its description, and the declarations that loosen a check."""

    description: Description
    declarations: tuple[Declaration, ...] = ()


def altered(old: Saying, new: Saying) -> tuple[Alteration, ...]:
    """The changes of a backend's description of itself."""
    return (*_descriptions(old.description, new.description), *_declared(old.declarations, new.declarations))


def _descriptions(old: Description, new: Description) -> Iterator[Alteration]:
    for subject in dict.fromkeys((*old, *new)):
        if subject not in new:
            yield Alteration("lost", subject, "there", "gone")
        elif subject not in old:
            yield Alteration("gained", subject, "", "there")
        elif old[subject] != new[subject]:
            yield from _facts(subject, old[subject], new[subject])


def _facts(subject: str, old: Facts, new: Facts) -> Iterator[Alteration]:
    for name in dict.fromkeys((*old, *new)):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if before is None or after is None:
            yield Alteration("lost" if after is None else "gained", subject, _text(before), _text(after), name)
        elif isinstance(before, str) or isinstance(after, str):
            yield Alteration("said", subject, _text(before), _text(after), name)
        else:
            yield from _possible(subject, name, before, after)


def _possible(subject: str, name: str, old: Iterable[str], new: Iterable[str]) -> Iterator[Alteration]:
    gone, fresh = _without(old, new), _without(new, old)
    if gone:
        yield Alteration("lost", subject, _text(gone), "gone", name)
    if fresh:
        yield Alteration("gained", subject, "", _text(fresh), name)


def _without(these: Iterable[str], those: Iterable[str]) -> tuple[str, ...]:
    """Those of the first that the second lacks, in their order."""
    lacking = set(those)
    return tuple(one for one in these if one not in lacking)


def _declared(old: Iterable[Declaration], new: Iterable[Declaration]) -> Iterator[Alteration]:
    """A new declaration, a larger number or more rows are looser: more counts as correct than before."""
    before, after = _by_key(old), _by_key(new)
    for key in dict.fromkeys((*before, *after)):
        past, now = before.get(key), after.get(key)
        if past is None or now is None:
            item = past or now
            assert item is not None
            subject = f"declaration of {item.where}"
            if past is None:
                yield Alteration("lost", subject, "", item.what, "looser")
            else:
                yield Alteration("gained", subject, item.what, "", "stricter")
            continue
        if past.value is not None and now.value is not None and past.value != now.value:
            looser = now.value > past.value
            yield _moved(now, past.what, now.what, looser=looser)
        elif past.what != now.what:
            yield Alteration("said", f"declaration of {now.where}", past.what, now.what, "declared")
        fresh, gone = _without(now.rows, past.rows), _without(past.rows, now.rows)
        if fresh:
            yield _moved(now, "", f"{now.what}: {_text(fresh)}", looser=True)
        if gone:
            yield _moved(now, f"{now.what}: {_text(gone)}", "", looser=False)


def _moved(item: Declaration, old: str, new: str, *, looser: bool) -> Alteration:
    kind: Kind = "lost" if looser else "gained"
    return Alteration(kind, f"declaration of {item.where}", old, new, "looser" if looser else "stricter")


def _by_key(declared: Iterable[Declaration]) -> dict[str, Declaration]:
    """The declarations by key; of several with one key the loosest."""
    found: dict[str, Declaration] = {}
    for item in declared:
        known = found.get(item.key)
        if not item.key.startswith(_EXPECTED) and (known is None or (item.value or 0.0) > (known.value or 0.0)):
            found[item.key] = item
    return found


def _text(fact: str | tuple[str, ...] | None) -> str:
    return fact if isinstance(fact, str) else ", ".join(fact or ())
