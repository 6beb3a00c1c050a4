"""ExecuTorch's own text runner, in a process of its own: `python -m delegatekit_llm.stock` is that process.

The runner prints the text that it generates, byte by byte, and then a line with its times. Its callback would fail
within a character of several tokens.
"""

from __future__ import annotations

import codecs
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

from delegatekit.errors.misuse import WrongArgumentError
from delegatekit.pte.writer import data_paths
from delegatekit.reading import open_program
from delegatekit_api import ExecutionError, FormatError, PluginError, RuntimeUnavailableError
from delegatekit_toolkit.processes import ending, guarded, search_path, stop

from .fixed import DECODE, PREFILL
from .generation import speed_of
from .vocabulary import Vocabulary

#: The begin of the line with the times, which follows the text.
_TIMES: Final = b"\nPyTorchObserver "
#: Bytes of the runner's log that an error shows the end of.
_LOG: Final = 2000
#: What the runner calls.
_METHOD: Final = "forward"


class StockGeneration:
    """The times of ExecuTorch's runner, as it tells them; milliseconds since 1970, and numbers of tokens."""

    def __init__(self, times: dict[str, Any]) -> None:
        self.times = times

    def __str__(self) -> str:
        """The speeds, in a line."""
        prompt = (self.times["prompt_eval_end_ms"] - self.times["inference_start_ms"]) / 1000
        later = (self.times["inference_end_ms"] - self.times["prompt_eval_end_ms"]) / 1000
        given = speed_of(self.times["prompt_tokens"], prompt)
        return f"prompt: {given}, generation: {speed_of(self.times['generated_tokens'], later)}"


def stream(
    file: Path,
    tokenizer: Path,
    prompt: str,
    *,
    tokens: int,
    temperature: float = 0.0,
    told: Callable[[StockGeneration], None] | None = None,
) -> Iterator[str]:
    """The text that ExecuTorch's runner generates, as it comes; `told` is called with its times at the end.

    Backends whose delegates ExecuTorch's wheel does not have run by `delegatekit-executorch`, if that is installed.
    Raises RuntimeUnavailableError without `executorch` and for a file of two methods, WrongArgumentError for a prompt
    that leaves no place in the context, and ExecutionError with the end of the runner's log if it fails.
    """
    if find_spec("executorch") is None:
        raise RuntimeUnavailableError(
            "ExecuTorch is not installed", where="--stock", hint="pip install 'delegatekit-llm[stock]'"
        )
    _check(file, tokenizer, prompt)
    order: dict[str, Any] = {"file": str(file), "tokenizer": str(tokenizer), "prompt": prompt}
    order |= {"tokens": tokens, "temperature": temperature, "data": _data_of(file)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            guarded([sys.executable, "-m", __name__]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=search_path(),
            start_new_session=True,
        )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
            times = yield from _until_times(process.stdout)
            process.wait()
        finally:
            stop(process)
        if process.returncode or times is None:
            log.seek(0)
            said = log.read().decode("utf-8", "replace")[-_LOG:].strip()
            raise ExecutionError(
                f"ExecuTorch's runner {ending(process.returncode)}; the end of its log:\n{said}", where=str(file)
            )
    if told is not None:
        told(StockGeneration(times))


def _check(file: Path, tokenizer: Path, prompt: str) -> None:
    """Refuse a file and a prompt that the runner would fail with; what cannot be read is left to it."""
    with suppress(FormatError):
        methods = open_program(file).methods
        if PREFILL in methods:
            raise RuntimeUnavailableError(
                f"ExecuTorch's runner keeps the buffers of methods apart: {DECODE} would not see what {PREFILL} wrote",
                where=str(file),
                hint="leave --stock out, or lower the model with --method forward",
            )
        if _METHOD not in methods:
            raise RuntimeUnavailableError(
                f"ExecuTorch's runners in Python take language models with a method {_METHOD}",
                where=str(file),
                hint="an encoder and a decoder run in its C++ runner for speech (extension/asr), or without --stock",
            )
        if (told := methods.get("get_max_context_len")) is not None:
            context = told.values[told.outputs[0]].content
            count = len(Vocabulary(tokenizer).encode(prompt))
            if isinstance(context, int) and count >= context:
                raise WrongArgumentError(
                    f"the prompt has {count} tokens, and the context {context}: the runner takes less",
                    where=str(file),
                    hint="shorten it, or lower the model with a larger --context",
                )


def _until_times(output: IO[bytes] | None) -> Generator[str, None, dict[str, Any] | None]:
    """The text before the line with the times; returns these, None if the output ends without."""
    assert output is not None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    held = b""
    while data := output.read1(4096):  # type: ignore[attr-defined]
        held += data
        if _TIMES in held:
            # The last one: a model may generate these words, too.
            text, _, line = (held + output.read()).rpartition(_TIMES)
            if piece := decoder.decode(text, final=True):
                yield piece
            times: dict[str, Any] = json.loads(line.partition(b"\n")[0])
            return times
        kept = next((count for count in range(len(_TIMES) - 1, 0, -1) if held.endswith(_TIMES[:count])), 0)
        if piece := decoder.decode(held[: len(held) - kept]):
            yield piece
        held = held[len(held) - kept :]
    if piece := decoder.decode(held, final=True):
        yield piece
    return None


def _data_of(file: Path) -> str | None:
    """The data file beside a program; None if it has none."""
    (beside,) = data_paths(file, [""])
    return str(beside) if beside.is_file() else None


def _register_delegates(file: Path) -> None:
    """Our delegates of a file: those that ExecuTorch has not, and the vendors' libraries that its own look for."""
    from delegatekit.plugins import find_by_delegate_id
    from delegatekit_executorch import host

    for method in open_program(file).methods.values():
        for delegate in method.delegates:
            # Without a plugin that runs it, it must be one of ExecuTorch's own; else loading the file says which.
            with suppress(PluginError):
                host.register(find_by_delegate_id(delegate.id, delegate.owner.known).info.name)


def main() -> None:
    """Run one order of the parent process."""
    order = json.loads(sys.stdin.read())
    if find_spec("delegatekit_executorch") is not None:
        _register_delegates(Path(order["file"]))
    with suppress(ImportError):  # kernels of operators that ExecuTorch's own exporter uses
        import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401
    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner

    runner = TextLLMRunner(order["file"], order["tokenizer"], *([order["data"]] if order["data"] else []))
    settings = GenerationConfig(max_new_tokens=order["tokens"], temperature=order["temperature"], echo=False)
    try:
        runner.generate(order["prompt"], settings)
    except RuntimeError as error:  # its log, which ends with this, says why
        sys.exit(str(error))


if __name__ == "__main__":
    main()
