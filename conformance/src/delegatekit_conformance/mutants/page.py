"""The scores as a part of a Markdown page, which may have other parts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .score import Judged, Score

#: The heading of the part, and of one backend's.
TITLE = "## Mutation scores"
_BACKEND = "### "
_WORDS = """
Written by `python docs/mutation_scores.py`, from what `make mutants` found. Do not edit.

Each mutant is a backend with one small change of its own code, drawn by seed from all rooms of the plugin. A mutant
is killed if an example of the suite finds a fault that the plugin without the change does not have. A backend that
only takes less than before, makes larger delegates of the same operators or ones with more work, refuses less damage,
or says something else of itself or of what it refuses, has no fault, so no single run can find such a mutant:
`conform diff` between two runs tells of it. It counts as found, and its number stands apart. What the quick profile
does not kill is tried with the default profile's examples, where that was asked for. A mutant that no example
reaches, one that the limit of time gave up, and one that only unit tests would find count as survived.
Changes that make no difference are marked in the plugin's `mutants.toml`, with a reason each, and are not counted.
"""


def table(score: Score) -> list[str]:
    """The lines of a Markdown table: how many mutants each profile finds in each room."""
    head = ["room", "mutants"]
    for profile in score.profiles:
        head += [f"{profile}: found", "killed", "told by diff"]
    rows = [head, ["---"] * len(head)]
    for room in [*score.rooms, ""]:
        rates = [score.rate(profile, room) for profile in score.profiles]
        row = [room or "all", str(rates[0].mutants)]
        for rate in rates:
            row += [f"{rate.found} ({_percent(rate.found, rate.mutants)})", str(rate.killed), str(rate.told)]
        rows.append(row)
    return [f"| {' | '.join(row)} |" for row in rows]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def part(score: Score) -> str:
    """The part of the page about one backend."""
    survivors = score.survivors
    only = f" Only the cases {', '.join(f'`{pattern}`' for pattern in score.select)}." if score.select else ""
    limit = f" Each mutant had {score.seconds:g} CPU seconds of examples of a profile." if score.seconds else ""
    words = [
        f"{_BACKEND}{score.backend}",
        "",
        f"Version {score.version}, suite {score.suite}, seed {score.seed}; "
        f"{score.equivalent} drawn ones are marked.{limit}{only}",
        "",
        *table(score),
        "",
    ]
    if survivors:
        words += [_classes(survivors), ""]
        words += ["| survived | change | line | examples |", "|---|---|---|---|"]
        for judged in survivors:
            found = judged.found[-1]
            told = f"{found.tried} of {found.possible}" if found.possible else found.untried
            change = f"{judged.kind}: {_code(judged.before)} becomes {_code(judged.after)}"
            words.append(f"| `{judged.file}:{judged.line}` | {change} | {_code(judged.text)} | {told} |")
        words.append("")
    return "\n".join(words)


def _classes(survivors: Sequence[Judged]) -> str:
    """The number of survivors for each reason, in a sentence."""
    last = [judged.found[-1] for judged in survivors]
    unreached = [found for found in last if not found.possible and not found.reaching]
    alike = [found for found in last if not found.possible and found.reaching]
    late = [found for found in last if found.gave_up]
    tried = [found for found in last if found.possible and not found.gave_up]
    return (
        f"{len(last)} survived: no example reaches {len(unreached)}; {len(alike)} have the same value in all examples "
        f"that reach them; {len(late)} ended at the limit of time; of {len(tried)} all examples were tried that may "
        "show them."
    )


def _code(text: str, most: int = 80) -> str:
    words = " ".join(text.split()).replace("|", "\\|").replace("`", "'")
    return f"`{words if len(words) <= most else words[: most - 4] + ' ...'}`" if words else "nothing"


def updated(page: str, scores: Sequence[Score]) -> str:
    """The page with the parts of these backends new; the parts of others, and the text before them, stay."""
    before, _, after = page.partition(TITLE)
    parts = dict(re.findall(r"^### (\S+)\n(.*?)(?=^### |\Z)", after, re.M | re.S))
    texts = {name: f"{_BACKEND}{name}\n{text.rstrip()}\n" for name, text in parts.items()}
    texts |= {score.backend: part(score).rstrip() + "\n" for score in scores}
    return "\n".join([f"{before.rstrip()}\n", f"{TITLE}\n{_WORDS}", *(texts[name] for name in sorted(texts))])
