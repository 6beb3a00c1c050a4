"""What every compiler-like backend writes again, each thing once: import the module that has what you need.

| module | what it has |
|---|---|
| `support` | rows of operators, the support table that is made of them, its partitioner |
| `constraints` | constraints that most backends need: dtypes, ranks, elements, constants, numbers |
| `options` | options that most backends have, and checks of options' values |
| `building` | the walk over a partition, and a base for graph builders: values, constants, debug handles, merging |
| `passes` | runs passes over a backend's graph, with the graph's own checks in between |
| `arguments` | axes and window settings as PyTorch lets them be written |
| `layout` | orders of axes: what permutations and reshapes do to elements in memory |
| `sizes` | sizes that change from call to call, computed with as if they were numbers |
| `quantized` | quantization whose parameters are found in each call |
| `units` | quantize-operator-dequantize units: what of a quantized program becomes operations on integers |
| `dtypes` | dtypes by torch's names |
| `content` | constants as named data under keys that are made of the content |
| `blob` | blobs sealed with version and checksum; compile specs and named data of a payload |
| `flatbuffer` | a flatbuffers codec whose schemas are dataclasses |
| `signature` | what a delegate is called with, and the checks that a runtime owes |
| `capture` | keeps what a vendor's library prints off stdout |
| `installed` | whether the package of a vendor's tool is there, without importing it |
| `etdump` | what stock ExecuTorch tells about the time of its runs |
| `processes` | a process that answers questions, for libraries that end or hang; how processes ended |
| `documentation` | support tables as the data that a backend's page of the documentation is made of |
| `testing` | calls, payloads and comparisons for tests of a backend's parts |
| `tosa` | TOSA 1.0: graphs, operators, files, numerics, Arm's reference model |

Support tables and blobs are read by different halves of a backend: `content`, `blob`, `flatbuffer`, `signature` and
`dtypes` are for both, `capture` for what calls a library, all others for lowering alone.
"""
