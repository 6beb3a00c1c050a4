# %% [markdown]
# # A U-Net for images of any size
#
# The network learns to find discs in noise, for a few seconds. One file then segments images of several sizes, and its
# masks are those of PyTorch.

# %%
import torch
from models import TINY, unet

import delegatekit

model, (example,) = unet()
size = example.shape[-1]


def discs(count: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (count, 3, side, side) of noise with a disc each, and the masks of the discs."""
    center = side * (0.3 + 0.4 * torch.rand(count, 2, 1, 1))
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    mask = (y - center[:, 0]) ** 2 + (x - center[:, 1]) ** 2 < (side / 5) ** 2
    return mask.unsqueeze(1) + 0.5 * torch.randn(count, 3, side, side), mask.long()


# %% [markdown]
# ## A little training

# %%
torch.manual_seed(0)
model.train()
optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(100 if TINY else 40):
    images, masks = discs(8 if TINY else 4, size)
    loss = torch.nn.functional.cross_entropy(model(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"loss {loss.item():.3f}")

# %% [markdown]
# ## One file for many sizes
#
# Height and width are multiples of 4, because the network halves images twice. Every size needs an upper bound: memory
# is planned for it.

# %%
height, width = torch.export.Dim("height", min=2, max=size // 2), torch.export.Dim("width", min=2, max=size // 2)
program = delegatekit.lower(
    model, (example,), backends=["xnnpack"], dynamic_shapes={"image": {2: 4 * height, 3: 4 * width}}
)
print(delegatekit.report(program))
program.save("unet.pte")

# %%
segment = delegatekit.load("unet.pte")["forward"]
for side in (size, size // 2, 2 * size):
    image, mask = discs(1, side)
    with torch.no_grad():
        wanted = model(image)
    logits = segment(image)
    torch.testing.assert_close(logits, wanted, rtol=1e-4, atol=1e-4)
    found = logits.argmax(1) == 1
    overlap = float((found & (mask == 1)).sum() / (found | (mask == 1)).sum())
    print(f"{side} x {side}: overlap with the disc {overlap:.2f}")
assert overlap > 0.5

# %% [markdown]
# ## Half the file
#
# XNNPACK can keep the weights as float16 and compute in float32.

# %%
small = delegatekit.lower(model, (example,), backends=["xnnpack"], options={"xnnpack": {"weights": "float16"}})
small.save("unet-half.pte")
full = delegatekit.lower(model, (example,), backends=["xnnpack"])
print(f"{len(full.buffer):,} bytes, with weights of float16 {len(small.buffer):,}")
with torch.no_grad():
    error = float((delegatekit.load("unet-half.pte")["forward"](example) - model(example)).abs().max())
print(f"largest difference {error:.2g}")
assert error < 0.1

# %% [markdown]
# Next: `delegatekit lower models.py:unet -b xnnpack --html unet.html` writes [a page with the
# graph](../../docs/report.md).
