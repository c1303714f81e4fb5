import pytest

from rltrain.config.redact import (
    REDACTED,
    is_secret_key,
    redacted,
    redacted_arguments,
    scrubbed,
    secret_values,
)


@pytest.mark.parametrize(
    "key",
    [
        "WANDB_API_KEY",
        "api_key",
        "apiKey",
        "HF_TOKEN",
        "hfToken",
        "token",
        "db_password",
        "client_secret",
        "AWS_SECRET_ACCESS_KEY",
    ],
)
def test_sec_03_secret_like_keys_are_known(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "num_memory_tokens",
        "max_tokens",
        "stop_token_ids",
        "prompt_key",
        "label_key",
        "eos_token",
        "pad_token",
        "tokens",
        "key",
        "tokenizer",
        "",
    ],
)
def test_sec_03_ordinary_keys_are_not_redacted(key: str) -> None:
    assert not is_secret_key(key)


def test_sec_03_a_tree_loses_its_secrets_and_nothing_else() -> None:
    tree = {
        "cluster": {"env": {"WANDB_API_KEY": "SECRET123", "HF_TOKEN": None, "OMP_NUM_THREADS": "1"}},
        "rollout": {"num_memory_tokens": 7, "stop": ["hf_" + "a" * 30]},
        "note": "the key is SECRET123",
    }
    assert redacted(tree, secrets=["SECRET123"]) == {
        "cluster": {"env": {"WANDB_API_KEY": REDACTED, "HF_TOKEN": None, "OMP_NUM_THREADS": "1"}},
        "rollout": {"num_memory_tokens": 7, "stop": [REDACTED]},
        "note": f"the key is {REDACTED}",
    }


def test_sec_03_secrets_on_a_command_line_are_replaced() -> None:
    arguments = ["train", "c.yaml", "cluster.env.WANDB_API_KEY=SECRET123", "rollout.max_tokens=4"]
    assert redacted_arguments(arguments) == [
        "train",
        "c.yaml",
        f"cluster.env.WANDB_API_KEY={REDACTED}",
        "rollout.max_tokens=4",
    ]


def test_secret_values_are_those_of_secret_like_variables_longest_first() -> None:
    environment = {"A_TOKEN": "abcdef", "WANDB_API_KEY": "abcdefgh", "PATH": "/usr/bin", "SHORT_TOKEN": "1"}
    assert secret_values(environment) == ("abcdefgh", "abcdef")


def test_passwords_in_addresses_are_scrubbed() -> None:
    assert scrubbed("https://user:hunter2@host/x") == f"https://{REDACTED}@host/x"
