# %% [markdown]
# # A language model, from training to generated text
#
# A small Llama learns the Zen of Python by heart, for some seconds. Its folder, as `save_pretrained` leaves it, becomes
# a file that recites it: in DelegateKit's engine here, in ExecuTorch's text runner on a device.

# %%
import codecs
import contextlib
import io
import math
from pathlib import Path

import torch
from models import TINY
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import delegatekit
import delegatekit_llm

with contextlib.redirect_stdout(io.StringIO()):
    import this  # it prints the text

TEXT = codecs.decode(this.s, "rot13")
print(TEXT[:112])

# %% [markdown]
# ## A tokenizer and a model
#
# Four heads share two of keys and values; the embedding is the head as well.

# %%
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
special = ["<s>", "</s>"]
tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=256, special_tokens=special, show_progress=False))
ids = torch.tensor(tokenizer.encode(TEXT).ids)

torch.manual_seed(0)
width = 64 if TINY else 128
config = LlamaConfig(
    vocab_size=tokenizer.get_vocab_size(),
    hidden_size=width,
    intermediate_size=2 * width,
    num_hidden_layers=2 if TINY else 4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=512,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=1,
)
model = LlamaForCausalLM(config)
print(f"{len(ids)} tokens, {sum(item.numel() for item in model.parameters()):,} weights")

# %% [markdown]
# ## Some seconds of training
#
# Parts of the text, eight at a time, and the token that follows each.

# %%
optimizer = torch.optim.AdamW(model.parameters(), 0.005)
for _ in range(120):
    starts = torch.randint(0, len(ids) - 65, (8,)).tolist()
    parts = torch.stack([ids[start : start + 65] for start in starts])
    loss = model(parts, labels=parts, use_cache=False).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"loss {loss.item():.3f}")

# %% [markdown]
# ## The folder, and the file
#
# `delegatekit lower-llm zen -b xnnpack` does the same on the command line. The tokenizer's files go beside the file.

# %%
folder = Path("zen")
model.save_pretrained(folder)
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
lowered = delegatekit_llm.lower(folder, ["xnnpack"], context=256)
lowered.save("zen.pte")
print(delegatekit.report(lowered.program))

# %% [markdown]
# ## It recites
#
# The text is that of transformers, token by token.

# %%
PROMPT = "Beautiful is better than"
generator = delegatekit_llm.Generator("zen.pte")
found = "".join(generator.stream(PROMPT, tokens=48))
print(PROMPT + found)

given = torch.tensor([tokenizer.encode(PROMPT).ids])
with torch.no_grad():
    tokens = model.generate(given, max_new_tokens=48, do_sample=False, pad_token_id=1)[0, given.shape[1] :]
assert found == tokenizer.decode(tokens.tolist())

# %% [markdown]
# ## Weights of four bits
#
# Perplexity is what the model finds a text surprising by: 1 is by heart. The quantized module computes in eager mode
# what its file computes, so that it can be measured before there is a device.


# %%
def perplexity(module: torch.nn.Module) -> float:
    """That of the text's begin, token by token as a file sees it."""
    with torch.no_grad():
        logits = [module(ids[None, place : place + 1], torch.tensor([place]))[0, -1] for place in range(128)]
    return math.exp(float(torch.nn.functional.cross_entropy(torch.stack(logits), ids[1:129])))


print(f"float32: perplexity {perplexity(lowered.module):.3f}, {len(lowered.program.buffer):,} bytes")
for scheme in ("int8-dynamic", "int8-dynamic-int4"):
    smaller = delegatekit_llm.lower(folder, ["xnnpack"], context=256, scheme=scheme, embedding_bits=8)
    surprise = perplexity(smaller.module)
    print(f"{scheme}: perplexity {surprise:.3f}, {len(smaller.program.buffer):,} bytes")
    assert surprise < 2 * perplexity(lowered.module)

# %% [markdown]
# Next: [language models](../../docs/language-models.md) has the families, the options, and what runs the file on a
# device.
