"""The supported operators and their lowerings: one module for each family of operators, with its table `ROWS`.

A row stands beside its lowering function and the constraints of its operators; `support` joins the families' rows. A
constraint gets a call and returns in words why XNNPACK cannot compute it, or None. A lowering function relies on that.

Facts of a row in addition to those of every backend's rows:

| fact | meaning |
|---|---|
| `float16` | a rule: true if a call computes in float16 as accurately as PyTorch does (`precision`) |
| `own_type` | a rule: true if a call, which only moves elements, may keep their type |
| `constants_of_any_type` | the argument with constant integers or bools that become part of the lowered nodes |
| `any_type` | the row's own constraints check the types of the tensors |
| `takes_sizes` | size arguments need not be known: they follow from the shape of the result |
| `converts` | the result is rounded because the program says so |
"""
