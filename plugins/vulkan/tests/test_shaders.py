"""The compiled shaders match the sources and are valid."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from delegatekit_vulkan.shaders import FOLDER, bytecode
from delegatekit_vulkan.shaders.numbers import header

from .shader_build import HEADER, RECORD, compile_shader, digest, variants

NAMES = [name for name, _, _ in variants()]


def test_every_shader_was_compiled_from_its_present_source() -> None:
    """The hashes written by the build: this needs no compiler."""
    record = json.loads(RECORD.read_text("utf-8"))
    assert record == {name: digest(source, defines) for name, source, defines in variants()}
    assert {path.stem for path in FOLDER.glob("*.spv")} == set(NAMES)


def test_the_header_has_the_numbers_of_the_code() -> None:
    assert HEADER.read_text("utf-8") == header()
    assert "#define UNARY_LEAKY_RELU 16u\n" in header()


@pytest.mark.skipif(shutil.which("glslc") is None, reason="glslc is not installed")
def test_the_sources_compile_to_what_is_shipped(tmp_path: Path) -> None:
    """Another version of glslc may reorder instructions: then the compiled code has the same entry and is valid."""
    for name, source, defines in variants():
        compile_shader(source, defines, tmp_path / f"{name}.spv")
        made = (tmp_path / f"{name}.spv").read_bytes()
        assert made[:8] == bytecode(name)[:8] and abs(len(made) - len(bytecode(name))) < len(made) // 10, name


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="spirv-val is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_every_shader_is_valid(name: str) -> None:
    command = ["spirv-val", "--target-env", "vulkan1.1", str(FOLDER / f"{name}.spv")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_shaders_ask_for_nothing_that_a_device_may_lack(name: str) -> None:
    """Of SPIR-V's capabilities only Shader, which every device has: no 8 or 16 bits, no 64 bits, no subgroups."""
    words = memoryview(bytecode(name)).cast("I")
    capabilities, position = [], 5
    while position < len(words):
        length, opcode = words[position] >> 16, words[position] & 0xFFFF
        if opcode == 17:
            capabilities.append(words[position + 1])
        position += length
    assert capabilities == [1], name
