# %% [markdown]
# # Speech: an encoder and a decoder in one file
#
# A model of Whisper's form. One program has two methods: `encode` for a spectrogram, and `decode` for a text of any
# length and the encoder's states. The weights are random, so the text means nothing; that it is PyTorch's text is what
# counts.

# %%
import torch
from models import whisper_decoder, whisper_encoder

import delegatekit

encoder, (example,) = whisper_encoder()
decoder = whisper_decoder()
with torch.no_grad():
    methods = {"encode": torch.export.export(encoder, (example,), strict=False), "decode": decoder}

# %% [markdown]
# ## One program, two methods
#
# Weights that both use are stored once. The length of the text changes from call to call, up to the bound of the
# export.

# %%
program = delegatekit.lower(methods, backends=["xnnpack"])
print(delegatekit.report(program))
program.save("whisper.pte")

# %% [markdown]
# ## Greedy decoding
#
# Each token is the best successor of the text so far that it does not have yet. Eager PyTorch and the file choose by
# themselves.

# %%
START, TOKENS = 3, 8


def transcribe(encode, decode, spectrogram: torch.Tensor) -> list[int]:
    """The tokens after START for a spectrogram (1, bands, frames)."""
    states = encode(spectrogram)
    text = [START]
    while len(text) <= TOKENS:
        logits = decode(torch.tensor([text]), states)[0, -1].clone()
        logits[text] = -torch.inf
        text.append(int(logits.argmax()))
    return text[1:]


torch.manual_seed(1)
spectrogram = torch.randn_like(example)
file = delegatekit.load("whisper.pte")
with torch.no_grad():
    wanted = transcribe(encoder, decoder.module(), spectrogram)
found = transcribe(file["encode"], file["decode"], spectrogram)
print("PyTorch:", wanted)
print("file:   ", found)
assert found == wanted

# %% [markdown]
# ## What is left to the runtime
#
# Embeddings are looked up by the runtime's own kernels, and masks are computed there. `explain` says why for each
# operator.

# %%
rows = delegatekit.explain(methods["encode"], backends=["xnnpack"]).rows
print(f"encode: {sum(row.backend == 'xnnpack' for row in rows)} of {len(rows)} operators on XNNPACK")
rows = delegatekit.explain(decoder, backends=["xnnpack"]).rows
print(f"decode: {sum(row.backend == 'xnnpack' for row in rows)} of {len(rows)} operators on XNNPACK")

# %% [markdown]
# Next: `examples/generate.py` has a decoder with a cache, whose methods share it; [profiling](../../docs/profiling.md)
# shows where the time of each method goes.
