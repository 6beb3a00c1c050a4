"""Ethos-U, side by side: stock ExecuTorch's Arm backend against DelegateKit, from the float model to the blob.

    pip install "executorch[ethos-u]==1.5.1"
    python benchmarks/ethos_u.py                         # all models and targets; stock takes minutes for each
    python benchmarks/ethos_u.py --models mobilenet-v2 --targets ethos-u55-128
    python benchmarks/ethos_u.py --engines ours          # without stock

Each measurement runs in a process of its own, one thread, one after the other; imports are not counted. Both quantize
with the same two samples. Latency and SRAM are what Vela says, asked in the same way for both; stock's TOSA file must
give stock's blob, byte for byte. The ratio of signal to noise is each side's own compiled result against its own
fake-quantized module in eager, on an input that neither has seen: ours on the host (the compiled stream for the U55,
the TOSA program in Arm's reference model for others), stock's TOSA program in the reference model. Last comes how
much two executions in eager differ, with float32 and with double precision between the integers: more cannot be asked
for.
"""

from __future__ import annotations

# (Not "ethosu.py": a script of that name would hide the package of Vela.)
import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from apart import measured

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

ENGINES = ("stock", "ours")
MODELS = ("mobilenet-v2", "efficientnet-lite0")
TARGETS = ("ethos-u55-128", "ethos-u85-256")
#: Heading -> key of a measurement, and how it is written.
COLUMNS = {
    "CPU s to quantize": ("quantize", "{:.1f}"),
    "CPU s to lower": ("lower", "{:.1f}"),
    "Vela's estimate, ms": ("milliseconds", "{:.2f}"),
    "SRAM KiB": ("sram_kib", "{:.0f}"),
    "flash KiB": ("flash_kib", "{:.0f}"),
    "blob bytes": ("blob", "{:,}"),
    "TOSA operators": ("operators", "{}"),
    "delegates": ("delegates", "{}"),
    "fallback operators": ("fallback", "{}"),
    "SQNR dB": ("sqnr", "{:.1f}"),
    "of eager itself": ("limit", "{:.1f}"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, help="names of delegatekit_conformance.models")
    parser.add_argument("--targets", nargs="*", default=TARGETS, help="as `delegatekit targets ethosu` lists them")
    parser.add_argument("--engines", nargs="*", default=ENGINES, choices=ENGINES)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--keep", type=Path, help="keep TOSA files and blobs in this folder")
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "MODEL", "TARGET"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure, arguments.keep)))
        return
    print(f"| model, target | engine | {' | '.join(COLUMNS)} |")
    print("|---" * (2 + len(COLUMNS)) + "|", flush=True)
    rows = []
    for model in arguments.models:
        for target in arguments.targets:
            for engine in arguments.engines:
                found = run(engine, model, target, arguments.keep)
                rows.append({"model": model, "target": target, "engine": engine, **(found or {})})
                cells = [form.format(found[key]) if found else "-" for key, form in COLUMNS.values()]
                print(f"| {model}, {target} | {engine} | {' | '.join(cells)} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def run(engine: str, model: str, target: str, keep: Path | None) -> dict[str, Any] | None:
    """One measurement in a fresh process; None, with the reason on stderr, if it fails."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    return measured(__file__, engine, model, target, more=[] if keep is None else ["--keep", str(keep)])


def measure(engine: str, model: str, target: str, keep: Path | None) -> dict[str, Any]:
    """Quantize and lower a model with one engine, compile what it gave to Vela, and run it on the host."""
    import logging
    import warnings

    import torch
    from torch.utils import _pytree as pytree

    from delegatekit.quantization.ratio import sqnr_db
    from delegatekit_conformance.cases.quantized import InDouble
    from delegatekit_ethosu.blob import pack
    from delegatekit_ethosu.compiler import compile_program
    from delegatekit_ethosu.options import EthosUOptions
    from delegatekit_toolkit import tosa

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    module, judged = build(model)
    samples = [(judged.flip(-1).contiguous(),), (judged.flip(-2).contiguous(),)]
    with torch.no_grad():
        found = {"stock": stock, "ours": ours}[engine](module, samples, judged, target)
        result, quantized = found.pop("result"), found.pop("quantized")
        reference = quantized(judged)
        precise = InDouble(quantized).run(judged)
    program, blob = found.pop("tosa"), found.pop("blob")
    compiled = compile_program(program, EthosUOptions(target=target))
    if pack(compiled) != blob:
        raise SystemExit(f"the TOSA file of {engine} does not give the blob of {engine}")
    if keep is not None:
        (keep / f"{engine}-{model}-{target}.tosa").write_bytes(program)
        (keep / f"{engine}-{model}-{target}.bin").write_bytes(blob)
    estimated = compiled.performance
    return {
        **found,
        "milliseconds": estimated.latency * 1e3,
        "cycles": estimated.cycles,
        "sram_kib": estimated.sram / 1024,
        "flash_kib": estimated.flash / 1024,
        "blob": len(blob),
        "operators": len(tosa.read(program).operations),
        "sqnr": sqnr_db(result, reference),
        "limit": sqnr_db(pytree.tree_leaves(precise)[0], reference),
        "vela": compiled.vela_version,
    }


def build(model: str) -> tuple[Any, Any]:
    """A model of `delegatekit_conformance.models` with one input, and that input.

    MobileNetV2 gets 1000 classes and, as its weights are random, the batch norm statistics of random images: without
    these its activations die out, and there is nothing to compare.
    """
    import torch

    if model != "mobilenet-v2":
        from delegatekit_conformance.models import build_model

        case = build_model(model)
        return case.module, case.inputs[0]
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    from delegatekit_conformance.models import OneOutput

    torch.manual_seed(0)
    module = OneOutput(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)), "logits").train()
    for layer in module.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None
    with torch.no_grad():
        for _ in range(2):
            module(torch.randn(4, 3, 224, 224))
    return module.eval(), torch.randn(1, 3, 224, 224)


def ours(module: Any, samples: list[Any], judged: Any, target: str) -> dict[str, Any]:
    """DelegateKit: the integers are kept beside the compiled program, so that there is something to compare."""
    import torch

    import delegatekit
    from delegatekit.lowering import Delegate

    delegatekit.backends()
    start = time.process_time()
    quantized = delegatekit.quantize(module, samples, backend="ethosu", progress=False)
    middle = time.process_time()
    exported = torch.export.export(quantized, (judged,), strict=False)
    options = {"ethosu": {"target": target, "keep_tosa": True}}
    program = delegatekit.lower(exported, backends=["ethosu"], options=options)
    data = program.buffer
    end = time.process_time()
    method = program.methods["forward"]
    # Debug handles count the nodes of the exported program from 1.
    targets = {place: str(node.target) for place, node in enumerate(exported.graph.nodes, 1)}
    outside = {step.meta["debug_handle"] for step in method.steps if not isinstance(step, Delegate)}
    (first,) = method.delegates
    return {
        "quantize": middle - start,
        "lower": end - middle,
        "delegates": len(method.delegates),
        "fallback": len([place for place in outside if "quantize_per_tensor" not in targets[place]]),
        "tosa": bytes(first.named_data[0].data),  # type: ignore[arg-type]
        "blob": b"".join(map(bytes, first.blob)),
        "result": delegatekit.load(data)["forward"].run((judged,))[0],
        "quantized": quantized,
    }


def stock(module: Any, samples: list[Any], judged: Any, target: str) -> dict[str, Any]:
    """Stock ExecuTorch, as its Arm backend's documentation has it; its delegate runs as the TOSA file that it kept."""
    import torch
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from delegatekit_toolkit.tosa import reference

    with tempfile.TemporaryDirectory() as scratch:
        start = time.process_time()
        spec = EthosUCompileSpec(target).dump_intermediate_artifacts_to(scratch)
        quantizer = EthosUQuantizer(spec)
        quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
        # Its annotation fails on the guards that torch 2.13 adds.
        prepared = prepare_pt2e(torch.export.export(module, (judged,)).module(check_guards=False), quantizer)
        for sample in samples:
            prepared(*sample)
        quantized: Any = convert_pt2e(prepared)
        middle = time.process_time()
        edge = to_edge_transform_and_lower(
            torch.export.export(quantized, (judged,)),
            partitioner=[EthosUPartitioner(spec)],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        end = time.process_time()
        # to_executorch changes this graph.
        calls = [node for node in edge.exported_program().graph.nodes if node.op == "call_function"]
        before, after = (
            next(node.args[1:] for node in calls if f".{name}_per_tensor" in str(node.target))
            for name in ("quantize", "dequantize")
        )
        boundary = ("quantize_per_tensor", "executorch_call_delegate", "getitem")
        fallback = [node for node in calls if not any(name in str(node.target) for name in boundary)]
        end -= time.process_time()
        program = edge.to_executorch()
        end += time.process_time()
        (file,) = Path(scratch).glob("out.tosa")
        tosa = file.read_bytes()
    plan = program.executorch_program.execution_plan[0]
    (delegate,) = plan.delegates
    quantize, dequantize = (
        getattr(torch.ops.quantized_decomposed, name).default
        for name in ("quantize_per_tensor", "dequantize_per_tensor")
    )
    (integers,) = reference.run(tosa, [quantize(judged, *before).numpy()])
    return {
        "quantize": middle - start,
        "lower": end - middle,
        "delegates": len(plan.delegates),
        "fallback": len(fallback),
        "tosa": tosa,
        "blob": bytes(program.executorch_program.backend_delegate_data[delegate.processed.index].data),
        "result": dequantize(torch.from_numpy(integers), *after),
        "quantized": quantized,
    }


if __name__ == "__main__":
    main()
