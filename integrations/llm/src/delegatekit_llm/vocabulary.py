"""The tokenizer of a lowered model: text to tokens, and tokens to text as it is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from delegatekit.errors.misuse import MissingFileError
from delegatekit_api import FormatError

#: What a decoder writes for bytes that are no whole character yet.
_INCOMPLETE: Final = "�"


class Vocabulary:
    """A Hugging Face tokenizer.json, with the chat template that lies beside it.

    Raises MissingFileError if the file is not there, and FormatError if it cannot be read.
    """

    def __init__(self, file: str | Path) -> None:
        from tokenizers import Tokenizer

        self.file = Path(file)
        if not self.file.is_file():
            raise MissingFileError(
                "there is no tokenizer", where=str(self.file), hint="--tokenizer FILE: the tokenizer.json of the model"
            )
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(self.file))
        except Exception as error:
            raise FormatError(f"is not a tokenizer.json: {error}", where=str(self.file)) from error

    def has(self, token: int) -> bool:
        """True if there is a token of this number: models may have more of them than their tokenizers."""
        return self._tokenizer.id_to_token(token) is not None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the tokenizer puts around it."""
        return list(self._tokenizer.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def number_of(self, token: str) -> int | None:
        """The number of a token that is written so; None if there is none."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def chat(self, message: str) -> str:
        """A user's message as the model's chat template writes it. Raises MissingFileError if there is no template."""
        from transformers.utils import chat_template_utils

        render: Any = chat_template_utils.render_jinja_template
        template = self._template()
        config = self._config()
        special = {name: _text(config[name]) for name in ("bos_token", "eos_token", "pad_token") if config.get(name)}
        conversation = [{"role": "user", "content": message}]
        rendered, _ = render([conversation], chat_template=template, add_generation_prompt=True, **special)
        return str(rendered[0])

    def _template(self) -> str:
        beside = self.file.with_name("chat_template.jinja")
        if beside.is_file():
            return beside.read_text("utf-8")
        template = self._config().get("chat_template")
        if not isinstance(template, str):
            raise MissingFileError(
                "there is no chat template",
                where=str(beside),
                hint="this model may not be one for chats: leave --chat out",
            )
        return template

    def _config(self) -> dict[str, Any]:
        place = self.file.with_name("tokenizer_config.json")
        if not place.is_file():
            return {}
        try:
            found: dict[str, Any] = json.loads(place.read_text("utf-8"))
        except ValueError as error:
            raise FormatError(f"is not JSON: {error}", where=str(place)) from error
        return found


class GrowingText:
    """The text of tokens that come one by one: each call gives what is complete, and was not given before."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._tokens: list[int] = []
        #: Tokens whose text was given; some are kept, since what decoders write depends on the token before.
        self._given = 0
        self._start = 0

    def add(self, token: int) -> str:
        """The text that this token completes; "" within a character of several tokens."""
        self._tokens.append(token)
        before = self._vocabulary.decode(self._tokens[self._start : self._given])
        now = self._vocabulary.decode(self._tokens[self._start :])
        if now.endswith(_INCOMPLETE):
            return ""
        self._start, self._given = self._given, len(self._tokens)
        return now[len(before) :]

    def rest(self) -> str:
        """What is left at the end: an incomplete character."""
        before = self._vocabulary.decode(self._tokens[self._start : self._given])
        return self._vocabulary.decode(self._tokens[self._start :])[len(before) :]


def text_in(data: bytes, where: str) -> str:
    """The text of a file. Raises FormatError if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"is not a text in UTF-8: byte {error.start} is {data[error.start]:#04x}", where=where
        ) from error


def _text(token: Any) -> str:
    return str(token["content"]) if isinstance(token, dict) else str(token)
