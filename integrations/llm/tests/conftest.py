"""Fixtures of the tests: a folder with a small model and its tokenizer, and the file that it is lowered to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import build, save_tokenizer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as save_pretrained leaves it: a Llama in two shards, with a tokenizer."""
    place = tmp_path_factory.mktemp("models") / "tiny-llama"
    count = save_tokenizer(place)
    build("llama", vocab_size=count).save_pretrained(place, max_shard_size="150KB")
    return place


@pytest.fixture(scope="session")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder's model on XNNPACK, with the tokenizer beside it."""
    from delegatekit_llm import lower

    place = tmp_path_factory.mktemp("lowered") / "tiny.pte"
    lower(folder, ["xnnpack"], context=96, chunk=16).save(place)
    return place


@pytest.fixture
def cli(command_with: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Calls the command in a folder of its own: gives what was printed, as `out` and `err`."""
    return command_with("")
