"""The main job: a pretrained network, lowered through an installed plugin, runs on both engines.

    python examples/demo.py        (or: make demo)

EfficientNet-Lite0 looks at the photo of a cat that scikit-image ships. Eager, DelegateKit's Python engine and the stock
ExecuTorch runtime are given the same input, the two engines the same file.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table

import delegatekit
from delegatekit_conformance.models import build_model

console = Console(width=120, highlight=False)


def main() -> None:
    """Lower, run three times, compare."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)  # torchao announces the GPU libraries that it does not find
    case = build_model("efficientnet-lite0")
    (photo,) = case.inputs
    console.print("installed backends: " + ", ".join(f"{i.name} {i.version}" for i in delegatekit.backends().values()))

    start = time.process_time()
    program = delegatekit.lower(case.module, case.inputs, backends=["xnnpack"])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "efficientnet-lite0.pte"
        program.save(path)
        console.print(
            f"lowered in {time.process_time() - start:.2f} CPU seconds, file of {path.stat().st_size:,} bytes"
        )
        console.print(str(delegatekit.report(program)), markup=False)
        with torch.no_grad():
            eager = case.module(photo)
        engine = delegatekit.load(path)["forward"](photo)
        stock = run_stock(path, photo)

    columns = {"eager": eager, "Python engine": engine, "stock runtime": stock}
    table = Table("", *columns, title="top 5: class (probability)")
    ranked = [logits.softmax(-1)[0].topk(5) for logits in columns.values()]
    for rank in range(5):
        table.add_row(str(rank + 1), *(f"{int(top.indices[rank])} ({top.values[rank]:.4f})" for top in ranked))
    console.print(table)
    for name, logits in (("Python engine", engine), ("stock runtime", stock)):
        difference = (logits - eager).abs().max()
        console.print(
            f"largest difference of {name} from eager: {difference:.2e} (largest logit {eager.abs().max():.2f})"
        )


def run_stock(path: Path, photo: torch.Tensor) -> torch.Tensor:
    """The same file in the stock ExecuTorch runtime."""
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    method = program.load_method("forward")
    assert method is not None
    result: torch.Tensor = method.execute([photo])[0]
    return result


if __name__ == "__main__":
    main()
