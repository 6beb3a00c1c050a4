"""Steps about compiling: lowering again, the cache of compiled partitions, data files of other programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import delegatekit
from delegatekit.plugins import COMPILED
from delegatekit.plugins.remembered import CACHE
from delegatekit.pte import read, read_ptd
from delegatekit.pte.manifest import read_manifest
from delegatekit_api import DelegateKitError

from ...outcome import Verdict
from ...trial import words
from ..environment import environment
from .library import Lowered, Wanted, content
from .pairs import Built, Inputs, Pair, tensors
from .script import lowering
from .world import Living, World, Wrong


def again(world: World, wanted: Wanted) -> None:
    """Lower a program again, after others: the files are the same as before."""
    if not _can_be_lowered(world, wanted):
        return
    before = world.lowered(wanted)
    world.script.append(f"print(digest({wanted.name}), digest({lowering(wanted, world.library)}))")
    if world.dry:
        return
    try:
        after = world.library.lower(wanted)
    except Exception as error:
        raise Wrong(Verdict.LOWERING_ERROR, f"{wanted.kind.name}, lowered again: {words(error)}") from error
    _check_keys(world, after)
    if content(after) != content(before):
        raise Wrong(Verdict.VIOLATION, f"{wanted.kind.name}, lowered again after other programs, gives another file")


def cached(world: World, wanted: Wanted, file: int) -> None:
    """Lower a program with a cache: the files are the same as without one.

    Above 0, `file` is the number of the content of the file that an option names.
    """
    options, more = _file(world, file)
    where = f', DELEGATEKIT_CACHE=str(folder / "{_CACHE}")'
    told = lowering(wanted, world.library, *more)
    world.script += [
        f'os.environ.update(DELEGATEKIT_COMPILED=""{where})',
        f"kept = digest({told})",
        'os.environ["DELEGATEKIT_COMPILED"] = "off"',
        f"print(kept, digest({told}))",
    ]
    world.mentioned.add(wanted)
    if world.dry:
        return
    try:
        alone = world.library.lower(wanted, options)
    except Exception:
        return  # these values are incompatible, or the file is invalid: nothing is kept
    with _cache(world.folder / _CACHE):
        try:
            kept = world.library.lower(wanted, options, cache=True)
        except Exception as error:
            raise Wrong(Verdict.LOWERING_ERROR, f"{wanted.kind.name}, with the cache: {words(error)}") from error
    if content(kept) != content(alone):
        chosen = {**world.library.options_of(wanted), **options}
        with_options = f" with {chosen}" if chosen else ""
        what = f"{wanted.kind.name}{with_options}: the cache of compiled partitions gives another program"
        raise Wrong(Verdict.VIOLATION, what)


def exchange(world: World, wanted: Wanted, other: Wanted) -> None:
    """Load a program with another's data files: it is refused, or answers as the modules do whose weights it has."""
    one, two = world.lowered(wanted), world.lowered(other)
    _check_keys(world, one)
    _check_keys(world, two)
    world.script += [
        "try:",
        f"    mixed = delegatekit.load({wanted.name}.buffer, data=list({other.name}.data_files.values()))",
        f"    pair = Pair(mixed, {wanted.kind.build.__name__}, {wanted.seed})",
        "    for method in pair.eager:",
        "        check(pair.call(method, 0, 4, 0))",
        "except delegatekit.DelegateKitError as error:",
        '    print("refused, as it should be:", error)',
    ]
    if world.dry or not one.data:
        return
    try:
        mixed = delegatekit.load(one.program.buffer, data=two.data)
        results = {name: mixed[name](*tensors(inputs, 0)) for name, inputs in _given(wanted).items()}
        mixed.close()
    except DelegateKitError:
        return
    except Exception as error:
        what = f"{wanted.kind.name} with the data of another: {words(error)}"
        raise Wrong(Verdict.LOAD_ERROR, what) from error
    builds = [wanted.kind.build]
    if wanted.kind is other.kind and not _all_named(one):
        # The runtime's own operators find weights by their names; delegates may have theirs in the blob.
        builds += [lambda _: other.kind.build(other.seed), lambda _: _mixed(one, two)]
    models = [Pair(None, build, wanted.seed) for build in builds]
    for number, pair in enumerate(models):
        try:
            _judge(world, one, pair, results)
        except Wrong as wrong:
            if number + 1 < len(models):
                continue
            what = f"takes the data file of {other.kind.name} with weights {other.seed} for its own: {wrong.detail}"
            raise Wrong(Verdict.MISMATCH, what, wrong.compared) from wrong
        return


def _given(wanted: Wanted) -> Mapping[str, Inputs]:
    return wanted.kind.build(wanted.seed)[1]


def _mixed(one: Lowered, two: Lowered) -> Built:
    """The modules of a program, with the weights in its data files replaced by another program's of the same names."""
    methods, given = one.kind.build(one.seed)
    others, _ = two.kind.build(two.seed)
    names = {name for data in one.data for name in read_ptd(data)}
    for method, module in methods.items():
        weights = others[method].state_dict()
        module.load_state_dict({name: weights[name] for name in names & weights.keys()}, strict=False)
    return methods, given


def _judge(world: World, lowered: Lowered, pair: Pair, results: Mapping[str, object]) -> None:
    """Raise Wrong if the first answers of a program's methods, in order, are not those of modules."""
    one = Living("a session with exchanged data", pair, lowered, None, "", {})
    for name, result in results.items():
        world.judge(one, name, (result, *pair.model(name, tensors(pair.given[name], 0))))


def _all_named(lowered: Lowered) -> bool:
    """True if all content of the data files is named data of delegates, whose keys identify the content."""
    image = read(lowered.program.buffer)
    keys = {key for keys in read_manifest(image).data_files.values() for key in keys}
    return not lowered.fallback_calls and keys <= set(lowered.named)


def _check_keys(world: World, lowered: Lowered) -> None:
    """Raise Wrong if a key of named data was another content's in a program that was lowered before."""
    for key, found in lowered.named.items():
        if world.library.named.setdefault(key, found) != found:
            what = f"{lowered.kind.name}: the key {key!r} of named data stood for other data in another program"
            raise Wrong(Verdict.VIOLATION, what)


def _can_be_lowered(world: World, wanted: Wanted) -> bool:
    """True if this value of an option is compatible with the program."""
    try:
        world.library.lowered(wanted)
    except Exception:
        return wanted.option < 0
    return True


# The cache

#: The folder of the cache, and the file that an option names.
_CACHE, _FILE = "cache", "option"


def _cache(folder: Path) -> AbstractContextManager[None]:
    """Within the block, compiled partitions are cached in a folder."""
    return environment({COMPILED: "", CACHE: str(folder)})


def _file(world: World, number: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """The option that names a file, which now has content of this number; the same for a script."""
    name = world.library.file_option() if number else ""
    if not name:
        return {}, ()
    path, given = world.folder / _FILE, world.library.context.options.get(name)
    text = f"{number}\n" if given is None else _with_another_number(Path(str(given)).read_text("utf-8"), number)
    world.script.append(f'(folder / "{_FILE}").write_text({text!r})')
    if not world.dry:
        path.write_text(text, "utf-8")
    return {name: str(path)}, (f'{name!r}: str(folder / "{_FILE}")',)


def _with_another_number(text: str, number: int) -> str:
    """The text with one of its whole numbers one larger."""
    places = list(re.finditer(r"(?<![\w.])\d+(?![\w.])", text))
    if not places:
        return text + f"\n{number}\n"
    place = places[number * 7919 % len(places)]
    return f"{text[: place.start()]}{int(place[0]) + 1}{text[place.end() :]}"
