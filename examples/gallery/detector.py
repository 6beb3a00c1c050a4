# %% [markdown]
# # A detector: convolutions, selection, suppression
#
# A detector ends with choices: the best cells (`topk`), their boxes (`index`), and the suppression of boxes that
# overlap a better one. Backends take the convolutions; who takes the choices differs. Each backend is asked, each file
# is run, and the boxes must be PyTorch's.

# %%
import torch
from models import detector

import delegatekit

model, (image,) = detector()
with torch.no_grad():
    boxes, scores, classes = model(image)
print(f"{len(boxes)} boxes, {int((scores > 0).sum())} of them left after suppression")

# %% [markdown]
# ## What each backend takes
#
# `program.shares` has the operators and the multiply-accumulates of each backend, and what is left out, with reasons.
# The runtime has kernels of its own for the rest: `topk`, `index`, `prod` and others.

# %%
installed = [name for name in ("xnnpack", "vulkan", "coreml") if name in delegatekit.backends()]
programs = {name: delegatekit.lower(model, (image,), backends=[name]) for name in installed}
for name, program in programs.items():
    print(f"{name}\n{delegatekit.report(program)}\n")

# %% [markdown]
# ## The same boxes?
#
# Vulkan and XNNPACK compute in float32. Core ML computes in float16: boxes move by hundredths of a pixel, and of two
# cells whose scores are nearly the same the other one may come first. So each of PyTorch's boxes is looked for among
# those of the file.

# %%
for name, program in programs.items():
    program.save(f"detector-{name}.pte")
    try:
        found = delegatekit.load(f"detector-{name}.pte")["forward"](image)
    except delegatekit.DelegateKitError as error:
        print(f"{name}: {error.what}")  # no driver on this machine, for instance
        continue
    nearest = torch.cdist(boxes, found[0]).min(1)
    same = (nearest.values < 1) & (found[2][nearest.indices] == classes)
    print(f"{name}: {int(same.sum())} of {len(boxes)} boxes, in the same order: {torch.equal(found[2], classes)}")
    assert same.sum() >= 0.9 * len(boxes)
    assert same.all() or name == "coreml"

# %% [markdown]
# ## Which operator is to blame?
#
# `compare` runs the file beside PyTorch, operator by operator, and judges each by what its precision explains.

# %%
comparison = delegatekit.compare(model, (image,), backends=[installed[0]])
print(str(comparison).splitlines()[0])

# %% [markdown]
# Next: [from the file to the device](../../docs/devices/README.md), and [choosing backends by
# measurement](../../docs/choosing.md).
