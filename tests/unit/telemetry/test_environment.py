import json

from rltrain.telemetry.environment import allowed_variables, environment_facts


def test_sec_03_only_listed_variables_are_recorded_and_never_secrets() -> None:
    environment = {
        "OMP_NUM_THREADS": "2",
        "VLLM_API_KEY": "SECRET456",
        "RAY_NOTE": "with SECRET123",
        "WANDB_API_KEY": "SECRET123",
        "HOME": "/home/someone",
    }
    assert allowed_variables(environment) == {"OMP_NUM_THREADS": "2", "RAY_NOTE": "with [redacted]"}


def test_facts_are_json_and_name_versions_and_machine() -> None:
    facts = json.loads(json.dumps(environment_facts()))
    assert {"torch", "ray", "transformers", "rltrain"} <= set(facts["packages"])
    assert facts["memory_bytes"] > 2**28
    assert facts["python"].startswith("3.")
