"""What every compiler-like backend writes again, each thing once: import the module that has what you need.

| module | what it has |
|---|---|
| `support` | rows of operators, the support table that is made of them, its partitioner |
| `constraints` | constraints that most backends need: dtypes, ranks, elements, constants, numbers |
| `arguments` | axes and window settings as PyTorch lets them be written |
| `quantized` | quantization whose parameters are found in each call |
| `sizes` | sizes that change from call to call, computed with as if they were numbers |
| `flatbuffer` | a flatbuffers codec whose schemas are dataclasses |
| `capture` | keeps what a vendor's library prints off stdout |
| `tosa` | TOSA 1.0: graphs, operators, files, numerics, Arm's reference model |
"""
