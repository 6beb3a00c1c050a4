"""The cards at the top of the page: a figure each, with its parts and a bar of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from delegatekit.lowering import Share, Shares
from delegatekit_toolkit.number_text import human_size, human_time

from ..report import MethodReport, Report
from .graph import Drawing, delegates_of, leaves
from .shell import text

#: Lines of a card; the rest is summed up.
_MOST = 6


@dataclass(frozen=True)
class Card:
    """A figure with its parts."""

    title: str
    figure: str
    #: Lines below: a class of the style sheet ("taker-0", "runtime", or ""), and words.
    lines: Sequence[tuple[str, str]] = ()
    #: Parts of the bar: a class and a size.
    bar: Sequence[tuple[str, float]] = ()
    #: "good", "warn", "bad" or "".
    tone: str = ""

    def html(self) -> Iterator[str]:
        """The card as an element of a list."""
        yield f'<li class="card {self.tone}"><h3>{text(self.title)}</h3><p class="figure">{text(self.figure)}</p>'
        if whole := sum(size for _, size in self.bar):
            yield '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">'
            at = 0.0
            for kind, size in self.bar:
                width = 100 * size / whole
                yield f'<rect class="{kind}" x="{at:.4g}" y="0" width="{width:.4g}" height="4"/>'
                at += width
            yield "</svg>"
        if self.lines:
            yield "<ul>"
            for kind, words in self.lines[:_MOST]:
                yield f'<li class="{kind}"><i></i>{text(words)}</li>' if kind else f"<li>{text(words)}</li>"
            if len(self.lines) > _MOST:
                yield f"<li>and {len(self.lines) - _MOST} more</li>"
            yield "</ul>"
        yield "</li>"


def cards(found: Iterable[Card]) -> Iterator[str]:
    """The cards as a list."""
    yield '<ul class="cards">'
    for card in found:
        yield from card.html()
    yield "</ul>"


def takers_of(drawings: Iterable[Drawing]) -> dict[str, str]:
    """Backend -> the class of its color, in the order in which the page's script meets them."""
    rows = (item.row for drawing in drawings for item in drawing.operators)
    names = dict.fromkeys(row.backend for row in rows if row is not None and row.backend)
    return {name: f"taker-{number % 5}" for number, name in enumerate(names)}


def shares(found: Shares, takers: Mapping[str, str]) -> Iterator[Card]:
    """The shares of the backends: of the operators, and of the multiply-accumulates."""
    parts = [(name, takers.get(name, "plain"), share) for name, share in found.backends.items() if share.operators]
    parts += [("the runtime", "runtime", found.runtime)] if found.runtime.operators else []
    yield _share("Operators delegated", found.delegated.operators, found.total.operators, parts, "operators")
    if found.total.macs:
        note = " (sizes that change at their upper bounds)" if found.changing else ""
        yield _share(f"MACs delegated{note}", found.delegated.macs, found.total.macs, parts, "macs")


def _share(title: str, part: int, whole: int, parts: Sequence[tuple[str, str, Share]], kind: str) -> Card:
    sizes = [(name, color, getattr(share, kind)) for name, color, share in parts]
    lines = [("", f"{part:,} of {whole:,}")]
    lines += [(color, f"{name}: {size:,}") for name, color, size in sizes if size]
    figure = "nothing to compute" if not whole else _percent(part, whole)
    return Card(title, figure, lines, [(color, size) for _, color, size in sizes], "bad" if whole and not part else "")


def _percent(part: int, whole: int) -> str:
    """A share in percent, rounded down: less than all is never 100."""
    return f"{1000 * part // whole / 10:.1f} %"


def crossings(drawings: Sequence[Drawing]) -> Card:
    """The values that are handed from one delegate to another, from the runtime to one, or back."""
    count = size = outwards = 0
    for drawing in drawings:
        home = {number: index for index, box in enumerate(delegates_of(drawing.items)) for number in leaves(box.items)}
        work = [item.row is not None for item in drawing.operators]
        pairs = {
            (maker, home.get(reader))
            for maker, reader in drawing.arrows
            if work[maker] and work[reader] and home.get(maker) != home.get(reader)
        }
        count += len(pairs)
        outwards += sum(place is None for _, place in pairs)
        size += sum(drawing.operators[maker].size for maker, _ in pairs)
    delegates = sum(len(list(delegates_of(drawing.items))) for drawing in drawings)
    lines = [("", f"{human_size(size)} in each call")] if count else []
    lines += [("", f"{outwards:,} to the runtime, {count - outwards:,} to delegates")] if count else []
    lines.append(("", f"{delegates:,} delegate{'s' * (delegates != 1)}"))
    return Card("Crossings", f"{count:,}", lines)


def file_size(report: Report, size: int) -> Card:
    """The bytes of the file, and of its parts."""
    blobs: dict[str, int] = {}
    for method in report.methods:
        for item in method.delegates:
            blobs[item.backend] = blobs.get(item.backend, 0) + item.blob_size
    parts = {f"blobs of {name}": bytes_ for name, bytes_ in blobs.items()}
    parts |= {"named data of backends": report.named_data_size, "constants": report.constant_size}
    lines = [("", f"{name}: {human_size(found)}") for name, found in parts.items() if found]
    lines += [("", f"{name}.ptd: {human_size(found)}") for name, found in report.data_files.items()]
    return Card("File", human_size(size), lines)


def weights(sizes: Mapping[str, int]) -> Iterator[Card]:
    """Bytes of the weights by dtype; nothing if there are none."""
    if not sizes:
        return
    ordered = sorted(sizes.items(), key=lambda item: -item[1])
    colors = [f"taker-{number % 5}" for number in range(len(ordered))]
    lines = [(color, f"{kind}: {human_size(size)}") for color, (kind, size) in zip(colors, ordered, strict=True)]
    bar = [(color, size) for color, (_, size) in zip(colors, ordered, strict=True)]
    yield Card("Weights of the program", human_size(sum(sizes.values())), lines, bar)


def memory(methods: Sequence[MethodReport]) -> Card:
    """The planned memory of the largest method, by space."""
    largest = max(methods, key=lambda method: method.arena_size)
    named = len(methods) > 1
    lines = [("", f"method {largest.name}")] if named else []
    for arena in largest.arenas:
        lines.append(("", f"{arena.space}: {human_size(arena.size)}, least possible {human_size(arena.bound)}"))
        if arena.peak:
            value = arena.peak[0]
            lines.append(("", f"largest at the peak: {value.name}, {human_size(value.size)}"))
    return Card("Peak memory", human_size(largest.arena_size), lines)


def estimates(methods: Sequence[MethodReport]) -> Iterator[Card]:
    """The time that the backends' compilers expect on their devices, by backend; nothing if none does."""
    times: dict[str, float] = {}
    counts: dict[str, int] = {}
    for method in methods:
        for item in method.delegates:
            if item.estimate is not None and item.estimate.latency is not None:
                times[item.backend] = times.get(item.backend, 0.0) + item.estimate.latency
                counts[item.backend] = counts.get(item.backend, 0) + 1
    if times:
        lines = [("", f"{name}: {human_time(seconds)} in {counts[name]} delegates") for name, seconds in times.items()]
        yield Card("Estimated on the device", human_time(sum(times.values())), lines)


def warnings(serious: Sequence[str], others: Sequence[str] = ()) -> Card:
    """The things to look at, the serious ones first."""
    count = len(serious) + len(others)
    tone = "bad" if serious else "warn" if others else "good"
    return Card(
        "Warnings", f"{count:,}" if count else "none", [("", words) for words in (*serious, *others)], tone=tone
    )
