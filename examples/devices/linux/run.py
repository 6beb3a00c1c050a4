"""Runs a program with one float32 input and prints its first output: python run.py MODEL.pte INPUT.f32."""

import sys

import torch
from executorch.runtime import Runtime

model, path = sys.argv[1:]
method = Runtime.get().load_program(model).load_method("forward")
sizes = method.metadata.input_tensor_meta(0).sizes()  # upper bounds of sizes that change
values = torch.from_file(path, size=torch.Size(sizes).numel(), dtype=torch.float32)
(output, *_) = method.execute([values.reshape(sizes)])
print(*(f"{value:.9g}" for value in output.flatten().tolist()), sep="\n")
