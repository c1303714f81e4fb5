"""Secrets kept out of everything a run writes: by the name of their key, by their value, by their shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

REDACTED = "[redacted]"

SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey"}
)
"""Words that make a key secret wherever they stand in it."""
SECRET_KEYS = frozenset({"api", "access", "auth", "encryption", "private", "secret", "signing", "ssh"})
"""Words that make a key secret right before its last word `key`."""
VOCABULARY_WORDS = frozenset({"bos", "cls", "end", "eos", "mask", "pad", "sep", "start", "stop", "unk"})
"""Words that make a last word `token` one of a vocabulary, not of an account."""
MIN_SECRET_LENGTH = 6
"""Shorter values of secret variables are not searched for: they would match ordinary text."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
SHAPES = re.compile(
    r"hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-[A-Za-z0-9_-]{20,}"  # OpenAI and its like
    r"|gh[pousr]_[A-Za-z0-9]{30,}"  # GitHub
    r"|AKIA[0-9A-Z]{16}"  # AWS
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"  # user:password@ of an address
)


def is_secret_key(key: str) -> bool:
    """Whether a key's name says that its value is a secret: `WANDB_API_KEY`, `hfToken`, not `num_memory_tokens`."""
    words = [word.lower() for word in WORD.findall(key)]
    if not words:
        return False
    if SECRET_WORDS.intersection(words):
        return True
    before = words[-2] if len(words) > 1 else ""
    if words[-1] == "key":
        return before in SECRET_KEYS
    return words[-1] == "token" and before not in VOCABULARY_WORDS


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of the secret-like variables, longest first, to search texts for."""
    found = {value for key, value in environment.items() if is_secret_key(key) and len(value) >= MIN_SECRET_LENGTH}
    return tuple(sorted(found, key=len, reverse=True))


def scrubbed(text: str, *, secrets: Iterable[str] = ()) -> str:
    """The text without the given secrets and without anything that has the shape of a known kind of key."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return SHAPES.sub(REDACTED, text)


def redacted(tree: Any, *, secrets: Sequence[str] = ()) -> Any:
    """A copy of a JSON-like tree: values under secret-like keys are replaced whole, other texts are scrubbed.

    A null stays: under `cluster.env` it means "the caller's own", and holds nothing.
    """
    if isinstance(tree, Mapping):
        items = cast("Mapping[Any, Any]", tree)
        return {key: _value(str(key), value, secrets=secrets) for key, value in items.items()}
    if isinstance(tree, list | tuple):
        return [redacted(row, secrets=secrets) for row in cast("Sequence[Any]", tree)]
    return scrubbed(tree, secrets=secrets) if isinstance(tree, str) else tree


def redacted_arguments(arguments: Iterable[str], *, secrets: Sequence[str] = ()) -> list[str]:
    """A command line without secrets: the value of a `secret.key=value` argument is replaced."""
    return [_argument(argument, secrets=secrets) for argument in arguments]


def _value(key: str, value: Any, *, secrets: Sequence[str]) -> Any:
    if value is not None and is_secret_key(key):
        return REDACTED
    return redacted(value, secrets=secrets)


def _argument(argument: str, *, secrets: Sequence[str]) -> str:
    key, equals, value = argument.partition("=")
    if equals and value and is_secret_key(key.rpartition(".")[2]):
        return f"{key}={REDACTED}"
    return scrubbed(argument, secrets=secrets)
