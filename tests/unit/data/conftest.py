"""Two small byte-level tokenizers: one with ChatML, as Qwen's and SmolLM2's, one that adds a BOS, as Llama 3's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CHATML = """{% if messages[0]['role'] != 'system' %}<|im_start|>system
Be brief.<|im_end|>
{% endif %}
{%- for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}"""
LLAMA = (
    "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
TEXTS = [
    "What is 3 + 4? Say the number.",
    "the cat sat on the mat; hello there",
    "user assistant system think Be brief.",
]


def byte_level_bpe(specials: list[str], plain: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 4, trainer)
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return tokenizer


def write(directory: Path, tokenizer: Tokenizer, config: dict[str, object]) -> Path:
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture
def chatml_dir(tmp_path: Path) -> Path:
    tokenizer = byte_level_bpe(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<think>", "</think>"])
    config = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML}
    return write(tmp_path / "chatml", tokenizer, config)


@pytest.fixture
def bos_dir(tmp_path: Path) -> Path:
    """Its post-processor puts `<s>` in front of every text."""
    tokenizer = byte_level_bpe(["<s>", "</s>"], [])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    eos = {"__type": "AddedToken", "content": "</s>", "special": True, **flags}
    config = {"bos_token": "<s>", "eos_token": eos, "chat_template": LLAMA}
    return write(tmp_path / "bos", tokenizer, config)
