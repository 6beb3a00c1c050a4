"""Writes a program as a C++ array: python header.py model.pte > model_pte.h."""

import sys
from pathlib import Path

data = Path(sys.argv[1]).read_bytes()
print(f"alignas(16) static const unsigned char model_pte[{len(data)}] = {{")
for start in range(0, len(data), 20):
    print("".join(f"{byte}," for byte in data[start : start + 20]))
print("};")
