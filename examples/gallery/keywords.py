# %% [markdown]
# # Keyword spotting on an Ethos-U
#
# A small network hears twelve words. It is trained on made-up spectrograms, quantized to int8, compiled for a
# microcontroller's NPU, and run here: the host runtime executes the very command stream that the Ethos-U55 gets.

# %%
import torch
from models import TINY, keywords

import delegatekit

model, (example,) = keywords()
torch.manual_seed(0)
WORDS = torch.randn(12, 1, 1, 10)  # each word has a spectrum of its own


def spoken(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Spectrograms (count, 1, 49, 10) of random words in noise, and which words they are."""
    words = torch.randint(0, len(WORDS), (count,))
    return WORDS[words] + torch.randn(count, 1, 49, 10), words


# %% [markdown]
# ## Training

# %%
model.train()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(80):
    heard, words = spoken(32)
    loss = torch.nn.functional.cross_entropy(model(heard), words)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
heard, words = spoken(40 if TINY else 200)


def accuracy(network) -> float:
    """The share of the words that are recognized."""
    with torch.no_grad():
        guessed = torch.stack([network(one[None]).argmax() for one in heard])
    return float((guessed == words).float().mean())


print(f"float: {accuracy(model):.3f}")

# %% [markdown]
# ## Quantization
#
# A few samples calibrate the ranges. `quantized.quantization` lists each layer, with the reason where one stays in
# float.

# %%
target = {"target": "ethos-u55-128"}
calibration = [(spoken(1)[0],) for _ in range(16)]
quantized = delegatekit.quantize(model, calibration, backend="ethosu", options=target)
print(quantized.quantization)
print(f"int8: {accuracy(quantized):.3f}")

# %% [markdown]
# ## Compilation
#
# Arm's Vela compiles the delegate, and estimates its time and memory. A budget refuses a program that does not fit.

# %%
program = delegatekit.lower(
    quantized, (example,), backends=["ethosu"], options={"ethosu": target}, budget={"sram": "512KB"}
)
print(delegatekit.report(program))
program.save("keywords.pte")

# %% [markdown]
# ## The compiled program, on this machine

# %%
run = delegatekit.load("keywords.pte")["forward"]
print(f"compiled: {accuracy(run):.3f}")
assert accuracy(run) == accuracy(quantized)
assert accuracy(run) > accuracy(model) - 0.1 > 0.5

# %% [markdown]
# Next: [the firmware](../../docs/devices/microcontrollers.md): memory pools by what `delegatekit inspect keywords.pte`
# prints, the kernels to link, Zephyr and bare metal.
