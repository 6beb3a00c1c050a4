"""Building blocks that every compiler-like backend needs: import the module that has what you need.

| module | what it has |
|---|---|
| `hooks` | the usual hooks of a plugin, which load their code when they are called |
| `support` | rows of operators, the support table that is made of them, its partitioner |
| `constraints` | constraints that most backends need: dtypes, ranks, elements, constants, numbers |
| `options` | options that most backends have, and checks of options' values |
| `building` | the walk over a partition, and a base for graph builders: values, constants, debug handles, merging |
| `passes` | runs passes over a backend's graph, with the graph's own checks in between |
| `arguments` | axes and window settings in the forms that PyTorch accepts |
| `layout` | orders of axes: what permutations and reshapes do to elements in memory |
| `sizes` | sizes that change from call to call, with the arithmetic of numbers |
| `quantized` | quantization whose parameters are found in each call |
| `units` | quantize-operator-dequantize units: the parts of a quantized program that become integer operations |
| `composed` | operators that a target lacks, composed of a few primitives |
| `dtypes` | dtypes by torch's names |
| `content` | constants as named data under keys that are hashes of the content |
| `blob` | blobs sealed with version and checksum; compile specs and named data of a payload |
| `foreign` | blobs that are a vendor's library's own model, sealed with its release and a signature |
| `flatbuffer` | a flatbuffers codec whose schemas are dataclasses |
| `json_text` | JSON with NaN and infinities, and JSON from outside: read within bounds, its types checked |
| `signature` | a delegate's inputs and outputs, and the checks that its runtime must make |
| `interpreting` | a base of runtimes that execute a delegate operator by operator |
| `capture` | redirects the output of a vendor's library away from stdout |
| `installed` | checks for the package of a vendor's tool, and for its release, without importing it |
| `etdump` | profiling events of stock ExecuTorch |
| `processes` | a worker process for libraries that crash or hang; exit statuses in words |
| `limited` | commands in processes of their own, with a time limit, and how each ended |
| `operator_tables` | support tables as the data of a backend's documentation page |
| `testing` | calls, payloads and comparisons for tests of a backend's parts |
| `tosa` | TOSA 1.0: graphs, operators, files, numerics, Arm's reference model |

Support tables and blobs belong to different halves of a backend: `content`, `blob`, `foreign`, `flatbuffer`,
`signature` and `dtypes` serve both, `capture` whatever calls a library, `interpreting` running, all others lowering
alone.
"""
