from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltrain.config.data import ChatTemplate, PromptFormat, Source
from rltrain.config.errors import UserError
from rltrain.data.prompts import load_prompt_set
from rltrain.data.tokenizer import Tokenizer

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def tokenizer(chatml_dir: Path) -> Tokenizer:
    return Tokenizer.load(chatml_dir)


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def a_format(*paths: Path, **changes: Any) -> PromptFormat:
    return PromptFormat(sources=tuple(Source(path=path) for path in paths), **changes)


def test_dat_03_the_limit_is_inclusive_and_counts_the_template(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """DAT-03: rows that render to 512 and 513 ids; kept 1, dropped 1, both numbers in the line for the log."""
    chat = ChatTemplate(system="Be brief.")
    frame = len(tokenizer.encode_prompt("\u00e8", chat)) - 2  # \u00e8 is two bytes, each a token of its own
    fitting = "\u00e8" * ((512 - frame) // 2) + "!" * ((512 - frame) % 2)
    longer = fitting + "!"
    assert [len(tokenizer.encode_prompt(text, chat)) for text in (fitting, longer)] == [512, 513]
    path = write(tmp_path / "a.jsonl", [{"prompt": fitting, "label": "1"}, {"prompt": longer, "label": "1"}])
    loaded = load_prompt_set(a_format(path, template=chat, max_prompt_tokens=512), tokenizer, where="data")
    assert [prompt.id for prompt in loaded.prompts] == ["a:1"]
    assert len(loaded.prompts[0].token_ids) == 512
    assert str(loaded.report) == "2 rows read, 1 prompts kept, 1 dropped (more than 512 tokens)"


def test_dat_03_dropping_every_row_is_an_error(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """DAT-03."""
    path = write(tmp_path / "a.jsonl", [{"prompt": "!!!!", "label": "1"}] * 2)
    with pytest.raises(UserError, match=r"data: no prompt is left: 2 rows read, 0 prompts kept, 2 dropped"):
        load_prompt_set(a_format(path, max_prompt_tokens=3), tokenizer, where="data")


def test_too_long_rows_can_be_an_error(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "!", "label": "1"}, {"prompt": "!!!!", "label": "1"}])
    with pytest.raises(UserError, match=r"a\.jsonl:2: data: has 4 tokens, more than max_prompt_tokens \(3\)"):
        load_prompt_set(a_format(path, max_prompt_tokens=3, too_long="error"), tokenizer, where="data")


def test_the_first_bad_rows_are_listed_with_their_places(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "ok", "label": "1"}, "{broken", *[{"prompt": "", "label": "1"}] * 6])
    with pytest.raises(UserError) as caught:
        load_prompt_set(a_format(path), tokenizer, where="eval.sets.x")
    lines = str(caught.value).split("\n")
    assert [line.split(" ")[0] for line in lines[:5]] == [
        f"{path}:2:2:",
        *(f"{path}:{number}:" for number in range(3, 7)),
    ]
    assert lines[5].startswith("eval.sets.x: and 2 more rows like these")


def test_dat_06_a_null_label_is_an_error_with_its_line(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """DAT-06."""
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "label": 7}, {"prompt": "b", "label": None}])
    with pytest.raises(UserError, match=r"a\.jsonl:2: data: label is null"):
        load_prompt_set(a_format(path), tokenizer, where="data")


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", ["{broken", {"prompt": "b", "label": "1"}, {"prompt": "c"}])
    loaded = load_prompt_set(a_format(path, on_bad_row="skip"), tokenizer, where="data")
    assert [prompt.id for prompt in loaded.prompts] == ["a:2"]
    assert str(loaded.report) == "3 rows read, 1 prompts kept, 2 bad rows skipped"


def test_a_template_that_refuses_a_row_names_it(tmp_path: Path, chatml_dir: Path) -> None:
    (chatml_dir / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    path = write(tmp_path / "a.jsonl", [{"prompt": "b", "label": "1"}])
    with pytest.raises(UserError, match=r"a\.jsonl:1: data: the chat template refuses it: roles must alternate"):
        load_prompt_set(a_format(path, template=ChatTemplate()), Tokenizer.load(chatml_dir), where="data")


def test_tok_01_prompt_sets_hold_the_ids_of_encode_prompt(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """TOK-01: training and evaluation sets, and the rollout request made of them, share one tokenisation."""
    template = ChatTemplate(kwargs={"enable_thinking": False})
    path = write(tmp_path / "a.jsonl", [{"prompt": text, "label": "1"} for text in ("hello", "the cat <|im_end|>")])
    loaded = load_prompt_set(a_format(path, template=template), tokenizer, where="data")
    for prompt in loaded.prompts:
        assert prompt.token_ids.tolist() == tokenizer.encode_prompt(prompt.content, template).tolist()


def test_ids_are_unique_over_sources_and_spans_mark_them(tmp_path: Path, tokenizer: Tokenizer) -> None:
    row = {"prompt": "a", "label": "1"}
    paths = [write(tmp_path / "x" / "t.jsonl", [row] * 2), write(tmp_path / "y" / "t.jsonl", [row] * 3)]
    loaded = load_prompt_set(a_format(*paths), tokenizer, where="data")
    assert [prompt.id for prompt in loaded.prompts] == ["t.0:1", "t.0:2", "t.1:1", "t.1:2", "t.1:3"]
    assert [(span.start, span.end) for span in loaded.sources] == [(0, 2), (2, 5)]


def test_limit_reads_no_further_than_it_must(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "!" * n, "label": "1"} for n in (9, 1, 2, 3)] + ["{broken"])
    loaded = load_prompt_set(a_format(path, max_prompt_tokens=5), tokenizer, where="data", limit=2)
    assert [prompt.id for prompt in loaded.prompts] == ["a:2", "a:3"]
    assert loaded.report.too_long == 1


def test_skipping_every_row_is_an_error_that_shows_the_first(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "a", "label": "1"}] * 3)
    with pytest.raises(
        UserError, match=r"3 bad rows skipped \(the first one skipped: .*a\.jsonl:1: has no column 'prompt'"
    ):
        load_prompt_set(a_format(path, on_bad_row="skip"), tokenizer, where="data")


def test_a_source_that_gives_no_prompt_is_an_error(tmp_path: Path, tokenizer: Tokenizer) -> None:
    paths = [write(tmp_path / f"{size}.jsonl", [{"prompt": "!" * size, "label": "1"}]) for size in (1, 9)]
    with pytest.raises(UserError, match=r"data\.sources\[1\]: no prompt of it is left"):
        load_prompt_set(a_format(*paths, max_prompt_tokens=5), tokenizer, where="data")


def test_a_chat_without_a_chat_template_is_one_problem(tmp_path: Path, chatml_dir: Path) -> None:
    (chatml_dir / "tokenizer_config.json").write_text("{}")
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "label": "1"}] * 9)
    with pytest.raises(UserError, match=r"eval\.sets\.x\.template\.kind = chat: .*no chat template") as caught:
        load_prompt_set(a_format(path, template=ChatTemplate()), Tokenizer.load(chatml_dir), where="eval.sets.x")
    assert len(caught.value.problems) == 1


def test_an_empty_file_is_an_error(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="no prompt is left: 0 rows read"):
        load_prompt_set(a_format(write(tmp_path / "a.jsonl", [])), tokenizer, where="data")


def test_the_fingerprint_tells_sets_apart(tmp_path: Path, tokenizer: Tokenizer) -> None:
    rows = [{"prompt": "a", "label": "1"}, {"prompt": "b", "label": "1"}]
    one, same, other = (
        load_prompt_set(a_format(write(tmp_path / str(number) / "a.jsonl", data)), tokenizer, where="data")
        for number, data in enumerate((rows, rows, rows[::-1]))
    )
    assert one.fingerprint == same.fingerprint != other.fingerprint


@pytest.mark.parametrize(("name", "count"), [("rep", 10), ("arithmetic", 81)])
def test_the_examples_have_the_rows_that_their_readme_says(name: str, count: int, tokenizer: Tokenizer) -> None:
    for file in ("train", "eval"):
        loaded = load_prompt_set(a_format(EXAMPLES / name / f"{file}.jsonl"), tokenizer, where="data")
        assert len(loaded.prompts) == len({prompt.content for prompt in loaded.prompts}) == count
        for prompt in loaded.prompts:
            digits = [character for character in str(prompt.content) if character.isdigit()]
            assert prompt.label == (digits[0] * 4 if name == "rep" else str(int(digits[0]) + int(digits[1])))


def test_the_place_of_a_broken_line_has_its_column(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a", "label": "1"}\n{"prompt": }\n')
    with pytest.raises(UserError) as caught:
        load_prompt_set(a_format(path), tokenizer, where="data")
    assert caught.value.problems[0].place == f"{path}:2:12"
    assert caught.value.problems[0].rule == "is no JSON: expecting value here"


def test_labels_that_nothing_can_match_are_bad_rows(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "a", "label": "1"}\n{"prompt": "b", "label": "{"}\n')

    def check(label: str) -> str | None:
        return "is no use" if label == "{" else None

    with pytest.raises(UserError) as caught:
        load_prompt_set(a_format(path), tokenizer, where="data", label_check=check)
    assert [(one.place, one.rule) for one in caught.value.problems] == [(f"{path}:2", "is no use")]
    skipping = load_prompt_set(a_format(path, on_bad_row="skip"), tokenizer, where="data", label_check=check)
    assert str(skipping.report) == "2 rows read, 1 prompts kept, 1 bad rows skipped"
