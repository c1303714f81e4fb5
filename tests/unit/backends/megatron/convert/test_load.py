"""Random weights follow from the seed and a tensor's name, in whatever order the parameters come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from rltrain.backends.megatron.convert.load import draw_weights
from rltrain.types.model_spec import ModelSpec

SPEC = ModelSpec(
    path=Path("model"), family="qwen2", num_layers=2, hidden_size=6, num_heads=4, num_kv_heads=2, head_dim=3,
    intermediate_size=5, vocab_size=96, norm_epsilon=1e-5, rope_theta=1e4, rope_scaling=None, max_positions=64,
    tied=False, qkv_bias=True, qk_norm=False, initializer_range=0.02, eos_ids=(1,),
)  # fmt: skip
SHAPES = {
    "embedding.word_embeddings.weight": (96, 6),
    "decoder.layers.0.self_attention.linear_qkv.weight": (24, 6),
    "decoder.layers.1.self_attention.linear_qkv.weight": (24, 6),
    "decoder.layers.1.mlp.linear_fc1.weight": (10, 6),
    "output_layer.weight": (96, 6),
}


class Parameters(torch.nn.Module):
    """Holds parameters under Megatron's names."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.held = {name: torch.nn.Parameter(torch.zeros(SHAPES[name])) for name in names}

    def named_parameters(self, *args: object, **options: object):  # type: ignore[override]
        del args, options
        return iter(self.held.items())


def drawn(names: list[str], *, seed: int = 1, spec: ModelSpec = SPEC) -> dict[str, torch.Tensor]:
    model = Parameters(names)
    draw_weights(model, spec, seed=seed)
    return {name: parameter.detach() for name, parameter in model.held.items()}


def test_the_order_and_the_other_parameters_do_not_matter() -> None:
    whole, backwards = drawn(list(SHAPES)), drawn(list(reversed(SHAPES)))
    assert all(torch.equal(whole[name], backwards[name]) for name in SHAPES)
    for name in SHAPES:
        assert torch.equal(drawn([name])[name], whole[name])


def test_no_two_tensors_are_alike_and_another_seed_gives_others() -> None:
    found = drawn(list(SHAPES))
    assert not torch.equal(found["embedding.word_embeddings.weight"], found["output_layer.weight"])
    layers = [found[f"decoder.layers.{number}.self_attention.linear_qkv.weight"] for number in range(2)]
    assert not torch.equal(*layers)
    other = drawn(list(SHAPES), seed=2)
    assert not any(torch.equal(found[name], other[name]) for name in SHAPES)


def test_the_range_is_the_configs() -> None:
    name = "embedding.word_embeddings.weight"
    torch.testing.assert_close(drawn([name], spec=replace(SPEC, initializer_range=0.2))[name], 10 * drawn([name])[name])
