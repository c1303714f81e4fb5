"""Keys handed on to vLLM and Megatron: checked against the libraries' source files, without importing either."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from rltrain.config.errors import Problem
from rltrain.config.tree import Config
from rltrain.config.unread import DDP_UNREAD, OPTIMIZER_UNREAD, TRANSFORMER_UNREAD, VLLM_UNREAD

VLLM_TAKEN = {
    "model": "actor.model.path",
    "tokenizer": "actor.model.path",
    "dtype": "actor.model.dtype",
    "seed": "run.seed",
    "max_model_len": "rollout.context_length",
    "tensor_parallel_size": "rollout.tensor_parallel",
    "kv_cache_memory_bytes": "rollout.kv_cache_bytes",
    "data_parallel_size": "rollout.engines",
}
"""Engine arguments that other keys decide."""
VLLM_FIXED = frozenset(
    {
        "enable_lora",
        "enable_sleep_mode",
        "generation_config",
        "load_format",
        "logprobs_mode",
        "pipeline_parallel_size",
        "quantization",
        "skip_tokenizer_init",
        "trust_remote_code",
        "worker_extension_cls",
    }
)
"""Engine arguments that log-probs, weight sync or safety depend on."""
TRANSFORMER_TAKEN = {
    "num_layers": "actor.model.path",
    "hidden_size": "actor.model.path",
    "num_attention_heads": "actor.model.path",
    "num_query_groups": "actor.model.path",
    "kv_channels": "actor.model.path",
    "ffn_hidden_size": "actor.model.path",
    "layernorm_epsilon": "actor.model.path",
    "add_qkv_bias": "actor.model.path",
    "qk_layernorm": "actor.model.path",
    "params_dtype": "actor.model.dtype",
    "bf16": "actor.model.dtype",
    "fp16": "actor.model.dtype",
    "tensor_model_parallel_size": "actor.parallel.tensor",
    "sequence_parallel": "actor.parallel.sequence",
    "pipeline_model_parallel_size": "actor.parallel.pipeline",
    "virtual_pipeline_model_parallel_size": "actor.parallel.virtual_pipeline",
    "num_layers_in_first_pipeline_stage": "actor.parallel.first_stage_layers",
    "num_layers_in_last_pipeline_stage": "actor.parallel.last_stage_layers",
    "context_parallel_size": "actor.parallel.context",
    "expert_model_parallel_size": "actor.parallel.expert",
    "expert_tensor_parallel_size": "actor.parallel.expert_tensor",
    "moe_token_dispatcher_type": "actor.parallel.expert_dispatch",
    "recompute_granularity": "actor.recompute",
    "recompute_method": "actor.recompute",
    "recompute_modules": "actor.recompute.modules",
    "recompute_num_layers": "actor.recompute.layers",
}
TRANSFORMER_FIXED = frozenset(
    {
        "add_bias_linear",
        "attention_dropout",
        "batch_p2p_comm",
        "gated_linear_unit",
        "hidden_dropout",
        "normalization",
        "overlap_p2p_comm",
        "pipeline_dtype",
        "variable_seq_lengths",
    }
)
OPTIMIZER_TAKEN = {
    "lr": "actor.optimizer.learning_rate",
    "min_lr": "actor.optimizer.schedule.min_lr",
    "weight_decay": "actor.optimizer.weight_decay",
    "adam_beta1": "actor.optimizer.beta1",
    "adam_beta2": "actor.optimizer.beta2",
    "adam_eps": "actor.optimizer.epsilon",
    "clip_grad": "actor.optimizer.clip_grad",
    "use_distributed_optimizer": "actor.parallel.shard_optimizer",
    "overlap_param_gather": "actor.parallel.overlap_param_gather",
    "params_dtype": "actor.model.dtype",
    "bf16": "actor.model.dtype",
    "fp16": "actor.model.dtype",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    key: str
    library: str
    """Top-level module."""
    classes: tuple[tuple[str, str], ...]
    """Files below the module's folder, each with its class."""
    taken: Mapping[str, str]
    fixed: frozenset[str] = frozenset()
    unread: Mapping[str, str]
    """Reasons by name."""


VLLM = Target(
    key="rollout.vllm",
    library="vllm",
    classes=(("engine/arg_utils.py", "EngineArgs"), ("engine/arg_utils.py", "AsyncEngineArgs")),
    taken=VLLM_TAKEN,
    fixed=VLLM_FIXED,
    unread=VLLM_UNREAD,
)
TRANSFORMER = Target(
    key="actor.megatron.transformer",
    library="megatron",
    classes=(
        ("core/transformer/transformer_config.py", "TransformerConfig"),
        ("core/model_parallel_config.py", "ModelParallelConfig"),
    ),
    taken=TRANSFORMER_TAKEN,
    fixed=TRANSFORMER_FIXED,
    unread=TRANSFORMER_UNREAD,
)
OPTIMIZER = Target(
    key="actor.megatron.optimizer",
    library="megatron",
    classes=(("core/optimizer/optimizer_config.py", "OptimizerConfig"),),
    taken=OPTIMIZER_TAKEN,
    fixed=frozenset({"decoupled_lr", "decoupled_min_lr", "optimizer"}),
    unread=OPTIMIZER_UNREAD,
)
DDP = Target(
    key="actor.megatron.ddp",
    library="megatron",
    classes=(("core/distributed/distributed_data_parallel_config.py", "DistributedDataParallelConfig"),),
    taken={
        "use_distributed_optimizer": "actor.parallel.shard_optimizer",
        "overlap_grad_reduce": "actor.parallel.overlap_grad_reduce",
        "overlap_param_gather": "actor.parallel.overlap_param_gather",
    },
    fixed=frozenset({"grad_reduce_in_fp32"}),
    unread=DDP_UNREAD,
)


def check_passthrough(config: Config) -> list[Problem]:
    """Keys that rltrain sets itself, and keys that the installed library doesn't have."""
    overrides = config.actor.megatron
    return [
        *_check(VLLM, config.rollout.vllm),
        *_check(TRANSFORMER, overrides.transformer),
        *_check(OPTIMIZER, overrides.optimizer),
        *_check(DDP, overrides.ddp),
    ]


def _check(target: Target, given: Iterable[str]) -> list[Problem]:
    problems: list[Problem] = []
    for name in given:
        key = f"{target.key}.{name}"
        if name in target.taken:
            problems.append(Problem(key=key, rule="is set by rltrain", hint=f"set {target.taken[name]} instead"))
        elif name in target.fixed:
            problems.append(Problem(key=key, rule="is set by rltrain and can't be changed", hint="remove it"))
        elif name in target.unread:
            problems.append(Problem(key=key, rule=target.unread[name], hint="remove it"))
        elif (known := known_fields(target)) and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            rule = f"is no field of {target.classes[-1][1] if target is VLLM else target.classes[0][1]}"
            problems.append(Problem(key=key, rule=rule, hint=f"did you mean {near[0]}?" if near else None))
    return problems


def known_fields(target: Target) -> frozenset[str]:
    """Fields of the target's classes; empty where the library isn't installed, which `doctor` tells."""
    spec = find_spec(target.library)
    folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
    found = (dataclass_fields(folder / file, name) for folder in folders for file, name in target.classes)
    return frozenset(field for fields in found for field in fields)


@cache
def dataclass_fields(path: Path, class_name: str) -> frozenset[str]:
    """Annotated names of a class in a source file; empty where there is no such file or class."""
    if not path.is_file():
        return frozenset()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == class_name:
            fields = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
            return frozenset(field.id for field in fields if isinstance(field, ast.Name))
    return frozenset()
