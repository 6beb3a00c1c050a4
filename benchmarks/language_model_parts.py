"""Where the time of a language model's file goes in ExecuTorch's runtime: products of weights, attention, and the rest.

    python benchmarks/language_model_parts.py FILE.pte ... [--prompt 128] [--rounds 5] [--threads 1]

Milliseconds of a prompt and of a token after it, by ExecuTorch's trace, of the quickest of the rounds: products inside
of delegates ("Fully Connected" of XNNPACK), attention, what else delegates take (XNNPACK counts whole microseconds of
an operator), and the runtime's other operators. The files' kernels are those of ExecuTorch's wheel.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from delegatekit_toolkit.stock import binding_with_all_kernels
from delegatekit_tools.profile import Profile, read_etdump

#: Part -> a text in the names of its operators.
_PARTS = {"products": "Fully Connected", "attention": "sdpa"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    print(f"| file | | {' | '.join(['whole', *_PARTS, 'other parts of delegates', 'other operators'])} |")
    print(f"|---|---|{'---|' * (len(_PARTS) + 3)}")
    for file in given.files:
        for what, profile in zip(("prompt", "token"), measured(file, given), strict=True):
            cells = (f"{1000 * seconds:.2f}" for seconds in parts(profile))
            print(f"| {file.parent.name or file.name} | {what} | {' | '.join(cells)} |", flush=True)


def measured(file: Path, given: argparse.Namespace) -> list[Profile]:
    """The profiles of the prompt and of a token."""
    binding = binding_with_all_kernels()
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  (adds attention's kernels)

    binding._unsafe_reset_threadpool(given.threads)
    prompt = (torch.arange(1, given.prompt + 1).reshape(1, -1), torch.tensor([0]))
    token = (torch.tensor([[7]]), torch.tensor([given.prompt]))
    found = []
    for inputs in (prompt, token):
        module = binding._load_for_executorch(str(file), enable_etdump=True)
        module.run_method("forward", prompt)
        for _ in range(given.rounds):
            module.run_method("forward", inputs)
        with tempfile.TemporaryDirectory() as folder:
            dump = Path(folder, "dump.etdp")
            module.write_etdump_result_to_file(str(dump), str(Path(folder, "debug")))
            found.append(read_etdump(dump, file, method="forward", warm_up=1))
    return found


def parts(profile: Profile) -> Sequence[float]:
    """Seconds: whole, each part, what else is in delegates, and the runtime's other operators; of the quickest call."""
    call = min(range(len(profile.total.wall)), key=profile.total.wall.__getitem__)
    named = dict.fromkeys(_PARTS, 0.0)
    within = outside = 0.0
    for item in profile.instructions:
        own, taken = item.times.wall[call], 0.0
        for each in item.operators or (item,):
            name = getattr(each, "name", item.calls)
            part = next((part for part, text in _PARTS.items() if text in name), None)
            if part is not None:
                named[part] += each.times.wall[call]
                taken += each.times.wall[call]
        if item.operators:
            within += own - taken
        else:
            outside += own - taken
    return (profile.total.wall[call], *named.values(), within, outside)


if __name__ == "__main__":
    main()
