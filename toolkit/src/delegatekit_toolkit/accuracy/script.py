"""Common parts of the scripts that reproduce a fault without the suite."""

from __future__ import annotations

#: Prints what the oracle compares: printed tensors would look equal.
COMPARISON = """
def compare(results, references, bound):
    leaves = [[x for x in torch.utils._pytree.tree_leaves(values) if x is not None] for values in (results, references)]
    for number, pair in enumerate(zip(*leaves, strict=True)):
        result, reference = (torch.as_tensor(x).double() for x in pair)
        if result.shape != reference.shape:
            print(f"output {number}: shape {tuple(result.shape)} instead of {tuple(reference.shape)}")
            continue
        finite = result.isfinite() & reference.isfinite()
        other = ~finite & (result != reference) & ~(result.isnan() & reference.isnan())
        error, right = (result - reference)[finite], reference[finite]
        largest, scale = (float(x.abs().max()) if x.numel() else 0.0 for x in (error, right))
        relative = largest / scale if scale else largest and float("inf")
        noise = float(10 * (right.square().sum() / error.square().sum()).log10()) if largest else float("inf")
        print(f"output {number}: largest error {largest:.3g}, relative to the largest value {relative:.3g}", end="")
        print(f" (bound: {bound}), signal to noise {noise:.1f} dB, {int(other.sum())} elements not finite in one only")
"""
#: The line of a script that `with_bound` completes.
BOUND = "bound = None"


def with_bound(snippet: str, bound: float | None) -> str:
    """The script with the largest relative error that the oracle allowed, if it is known."""
    return snippet if bound is None else snippet.replace(f"\n{BOUND}\n", f"\n{BOUND[:-4]}{bound:.3g}\n", 1)
