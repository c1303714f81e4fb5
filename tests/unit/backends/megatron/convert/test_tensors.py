"""The names and the order of a model's weights."""

from __future__ import annotations

from dataclasses import replace

from rltrain.backends.megatron.convert.tensors import model_weights, padded_vocab_size
from tests.unit.backends.megatron.convert.specs import QWEN2


def test_names_of_a_layer() -> None:
    weights = model_weights(replace(QWEN2, num_layers=12))
    assert dict(weights["decoder.layers.11.self_attention.linear_qkv.bias"].parts) == {
        "model.layers.11.self_attn.q_proj.bias": (12,),
        "model.layers.11.self_attn.k_proj.bias": (6,),
        "model.layers.11.self_attn.v_proj.bias": (6,),
    }
    assert dict(weights["decoder.final_layernorm.weight"].parts) == {"model.norm.weight": (6,)}


def test_the_order_is_that_of_the_forward_pass() -> None:
    names = list(model_weights(replace(QWEN2, num_layers=11)))
    assert names[0] == "embedding.word_embeddings.weight"
    assert names[-2:] == ["decoder.final_layernorm.weight", "output_layer.weight"]
    layers = [int(name.split(".")[2]) for name in names[1:-2]]
    assert layers == sorted(layers) and set(layers) == set(range(11))


def test_a_tied_model_has_no_output_layer() -> None:
    assert "output_layer.weight" not in model_weights(replace(QWEN2, tied=True))


def test_elements_are_those_that_the_spec_counts() -> None:
    for tied in (True, False):
        for qk_norm in (True, False):
            spec = replace(QWEN2, tied=tied, qk_norm=qk_norm)
            total = 0
            for weight in model_weights(spec).values():
                for shape in weight.parts.values():
                    size = 1
                    for length in shape:
                        size *= length
                    total += size
            assert total == spec.num_parameters


def test_the_vocabulary_is_padded_to_what_ranks_share_evenly() -> None:
    assert [padded_vocab_size(96, 1), padded_vocab_size(97, 2), padded_vocab_size(96, 2)] == [96, 98, 96]
