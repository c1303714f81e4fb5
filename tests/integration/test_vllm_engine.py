"""A real vLLM engine against transformers: generation, log-probs, weight sync."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from rltrain.types.errors import RunError
from rltrain.types.generation import GenerateResult
from rltrain.types.sample import FinishReason, VersionSpan
from tests.integration.vllm_setup import CONTEXT, TOLERANCE, Reference, RunningEngine, engine_setup, running_engine

PROMPTS = [[1 + place, 5, 7, 11, 200 + place] for place in range(6)]
CANARY = np.arange(3, 40, dtype=np.int32)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningEngine]:
    """A tied two-layer Qwen3 that has got the reference's weights."""
    reference = Reference(tiny_qwen3())
    path: Path = tmp_path_factory.mktemp("qwen3")
    reference.save_config(path)
    with running_engine(engine_setup(path), reference) as running:
        with pytest.raises(RunError, match="got no weights yet"):
            running.generate(PROMPTS)
        running.sync()
        yield running


def tiny_qwen3() -> torch.nn.Module:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=512,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            initializer_range=0.1,
        )
    )


def tokens(results: list[GenerateResult]) -> list[list[int]]:
    return [completion.token_ids.tolist() for result in results for completion in result.completions]


def logprobs(results: list[GenerateResult]) -> list[list[float]]:
    return [completion.logprobs.tolist() for result in results for completion in result.completions]


def largest_difference(engine: RunningEngine, results: list[GenerateResult], temperature: float) -> float:
    """Between the engine's log-probs and the reference's under `temperature`."""
    worst = 0.0
    for prompt, result in zip(PROMPTS, results, strict=True):
        for completion in result.completions:
            expected = engine.reference.logprobs([*prompt, *completion.token_ids.tolist()], temperature=temperature)
            worst = max(worst, float(np.abs(expected[len(prompt) - 1 :] - completion.logprobs).max()))
    return worst


def test_samples_of_a_prompt_differ_and_are_whole(engine: RunningEngine) -> None:
    (result,) = engine.generate(PROMPTS[:1], n=8)
    assert [completion.index for completion in result.completions] == list(range(8))
    assert len({tuple(ids) for ids in tokens([result])}) >= 7
    assert all(completion.finish_reason is FinishReason.LENGTH for completion in result.completions)
    assert all(len(completion.token_ids) == 8 for completion in result.completions)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_rol_01_log_probs_are_those_of_the_distribution_sampled_from(engine: RunningEngine, temperature: float) -> None:
    results = engine.generate(PROMPTS, n=4, temperature=temperature)
    assert largest_difference(engine, results, temperature) <= TOLERANCE
    assert largest_difference(engine, results, 2.0) > 0.1  # so another temperature would be noticed


def test_greedy_tokens_are_the_references_likeliest(engine: RunningEngine) -> None:
    for prompt, result in zip(PROMPTS, engine.generate(PROMPTS, temperature=0.0), strict=True):
        ids = prompt + tokens([result])[0]
        with torch.no_grad():
            likeliest = engine.reference.model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
        assert ids[len(prompt) :] == likeliest[len(prompt) - 1 : -1]


def test_scores_are_the_references_at_temperature_1_also_after_a_cached_prompt(engine: RunningEngine) -> None:
    engine.generate([CANARY.tolist()])
    for _ in range(2):
        assert np.abs(engine.score(CANARY) - engine.reference.logprobs(CANARY.tolist())).max() <= TOLERANCE


def test_a_stop_id_ends_a_response_and_stays_in_it(engine: RunningEngine) -> None:
    even = tuple(range(0, 512, 2))
    for ids, result in zip(
        tokens(results := engine.generate(PROMPTS, stop_token_ids=even, max_tokens=40)), results, strict=True
    ):
        assert result.completions[0].finish_reason is FinishReason.STOP
        assert ids[-1] % 2 == 0
        assert all(token % 2 for token in ids[:-1])
        assert len(result.completions[0].logprobs) == len(ids)


def test_rol_05_a_response_ends_where_the_context_does(engine: RunningEngine) -> None:
    full, nearly = [3] * CONTEXT, [3] * (CONTEXT - 5)
    none, few = engine.generate([full, nearly], n=2, max_tokens=40)
    assert [completion.finish_reason for completion in none.completions] == [FinishReason.NO_ROOM] * 2
    assert tokens([none]) == [[], []]
    assert [len(ids) for ids in tokens([few])] == [5, 5]
    assert all(completion.finish_reason is FinishReason.LENGTH for completion in few.completions)


@pytest.mark.parametrize("prompt", [[512], [-1, 3], []])
def test_a_request_that_cant_be_served_is_a_result_and_spares_the_others(
    engine: RunningEngine, prompt: list[int]
) -> None:
    bad, good = engine.generate([prompt, PROMPTS[0]])
    assert bad.error == "the prompt is empty or has ids outside of 0 to 511"
    assert bad.completions == ()
    assert good.error is None
    assert len(good.completions) == 1


def test_sampling_that_vllm_refuses_is_a_result(engine: RunningEngine) -> None:
    (result,) = engine.generate(PROMPTS[:1], stop_token_ids=(512,))
    assert result.error is not None
    assert "stop_token_ids" in result.error


def test_rol_03_seeds_repeat_and_differ(engine: RunningEngine) -> None:
    first, again, other = (engine.generate(PROMPTS[:2], n=4, seed=seed) for seed in (5, 5, 9))
    assert tokens(first) == tokens(again)
    assert tokens(first) != tokens(other)
    assert len({tuple(ids) for ids in tokens(first[:1])}) == 4


def test_requests_admitted_together_repeat_bit_for_bit(engine: RunningEngine) -> None:
    runs = [engine.generate(PROMPTS, together=True, n=4, seed=3, max_tokens=20) for _ in range(2)]
    assert tokens(runs[0]) == tokens(runs[1])
    assert logprobs(runs[0]) == logprobs(runs[1])


@pytest.mark.parametrize("bucket_bytes", [2**28, 100_000])
def test_wsy_05_after_a_sync_the_engine_computes_with_the_new_weights(engine: RunningEngine, bucket_bytes: int) -> None:
    """Tied head included; both with one bucket and with twelve, which cut through layers."""
    before = engine.reference.logprobs(CANARY.tolist())
    engine.reference.perturb(bucket_bytes)
    expected = engine.reference.logprobs(CANARY.tolist())
    assert np.abs(expected - before).max() > 0.1
    engine.sync(engine.reference.sender(bucket_bytes=bucket_bytes))
    assert np.abs(engine.score(CANARY) - expected).max() <= TOLERANCE
    results = engine.generate(PROMPTS, n=4)
    assert largest_difference(engine, results, 1.0) <= TOLERANCE
    assert results[0].completions[0].version_spans == (VersionSpan(engine.version, 0, 8),)


def test_wsy_05_no_element_keeps_an_old_value(engine: RunningEngine) -> None:
    """An engine full of 7.0 gives uniform log-probs only until the real weights are back."""
    weights = {name: tensor.clone() for name, tensor in engine.reference.tensors()}
    with torch.no_grad():
        for parameter in engine.reference.model.parameters():
            parameter.fill_(7.0)
    engine.sync()
    assert np.abs(engine.score(CANARY) + np.log(512)).max() <= TOLERANCE
    engine.reference.model.load_state_dict(weights, strict=False)
    engine.sync()
    assert np.abs(engine.score(CANARY) - engine.reference.logprobs(CANARY.tolist())).max() <= TOLERANCE


def test_wsy_05_a_tensor_that_isnt_sent_is_named(engine: RunningEngine) -> None:
    """One of a merged projection: vLLM itself would take the other two and say nothing."""
    name = "model.layers.1.self_attn.k_proj.weight"
    with pytest.raises(RunError, match=f"lack {name}"):
        engine.sync(engine.reference.sender(without=name))
    engine.sync()


def test_an_engine_refuses_until_the_next_sync(engine: RunningEngine) -> None:
    engine.run(engine.engine.refuse("the canary differed"))
    with pytest.raises(RunError, match="refuses to generate: the canary differed"):
        engine.generate(PROMPTS)
    engine.sync()
    assert engine.generate(PROMPTS)[0].error is None


def test_a_healthy_engine_says_so(engine: RunningEngine) -> None:
    engine.run(engine.engine.health())
    assert engine.info.pid > 0
    assert engine.info.versions["torch"] == torch.__version__
