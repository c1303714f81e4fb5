"""Chat templates rendered as Hugging Face renders them, without importing transformers (which takes seconds)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rltrain.types.sample import Message


class PromptError(ValueError):
    """A prompt that can't become token ids; the message is the rule it breaks."""


class GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for supervised masks; here only its body counts."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatRenderer:
    """One compiled chat template with the tokenizer's special token names (`bos_token`, ...) as variables."""

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        """Raises jinja2.TemplateError where the template doesn't compile."""
        self._template: JinjaTemplate = _environment().from_string(source)
        self._variables = dict(variables)

    def render(self, messages: Sequence[Message], kwargs: Mapping[str, Any]) -> str:
        """The conversation with the assistant's header at its end. Raises PromptError where the template refuses it."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        variables = {**self._variables, "tools": None, "documents": None, **kwargs}
        try:
            return self._template.render(messages=turns, add_generation_prompt=True, **variables)
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise PromptError(f"the chat template refuses it: {error}") from error


def _environment() -> ImmutableSandboxedEnvironment:
    """Templates come with models, so they run in the sandbox; the names are those that Hugging Face's templates use."""
    environment: Any = ImmutableSandboxedEnvironment(  # its globals and filters are untyped dictionaries
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    named: dict[str, Callable[..., object]] = {"raise_exception": _raise, "strftime_now": _strftime_now}
    environment.globals.update(named)
    environment.filters["tojson"] = _to_json  # jinja2's own escapes for HTML
    return environment


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
