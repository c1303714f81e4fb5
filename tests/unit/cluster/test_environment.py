import os

import pytest

from rltrain.cluster import environment


def test_cfg_07_a_callers_variables_do_not_reach_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOO", "x" * 200_000)
    monkeypatch.setenv("BAD", "a\nb")
    before = dict(os.environ)
    with environment.scrubbed("token"):
        assert "FOO" not in os.environ
        assert "BAD" not in os.environ
        assert os.environ[environment.TOKEN_VARIABLE] == "token"
        assert os.environ["PATH"] == before["PATH"]
    assert dict(os.environ) == before


def test_sec_03_tracker_keys_do_not_reach_workers():
    assert environment.allowed({"WANDB_API_KEY": "SECRET123", "HF_TOKEN": "SECRET123", "PATH": "/bin"}) == {
        "PATH": "/bin"
    }


def test_the_environment_comes_back_after_an_error():
    before = dict(os.environ)
    with pytest.raises(ZeroDivisionError), environment.scrubbed("token"):
        _ = 1 / 0
    assert dict(os.environ) == before


def test_cluster_env_sets_values_and_passes_on_what_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FOO", "callers")
    monkeypatch.delenv("MISSING", raising=False)
    assert environment.requested({"FOO": None, "BAR": "mine", "MISSING": None}) == {"FOO": "callers", "BAR": "mine"}
