"""One rank of the actor: its model, optimizer and weights. It knows no Ray; `cluster` puts it into an actor."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from rltrain.backends.megatron import shim
from rltrain.backends.megatron.setup import TrainSetup, WorkerInfo
from rltrain.device import collective_backend, use_device

shim.install()

from megatron.core import parallel_state  # noqa: E402 - after the shim
from megatron.core.distributed import DistributedDataParallel  # noqa: E402
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402

from rltrain.algorithms.objective import PolicyObjective  # noqa: E402
from rltrain.backends.megatron.args import DTYPES, megatron_args  # noqa: E402
from rltrain.backends.megatron.convert.load import draw_weights, hf_tensors, load_weights  # noqa: E402
from rltrain.backends.megatron.export import write_hf_directory  # noqa: E402
from rltrain.backends.megatron.model import HiddenStateModel, hidden_states  # noqa: E402
from rltrain.backends.megatron.optimizer import make_optimizer  # noqa: E402
from rltrain.backends.megatron.rendezvous import make_store  # noqa: E402
from rltrain.backends.megatron.stash import WeightStash  # noqa: E402
from rltrain.backends.megatron.step import Trainable, UpdateStep, scored  # noqa: E402
from rltrain.data.packing import pack  # noqa: E402
from rltrain.telemetry.profiler import Profiler  # noqa: E402
from rltrain.types.batch import PackedRows, Ragged, RolloutBatch, StepPlan  # noqa: E402
from rltrain.types.metrics import Max, Mean, Metrics, merged  # noqa: E402
from rltrain.types.model_spec import ModelSpec  # noqa: E402
from rltrain.types.sample import Floats, Ids  # noqa: E402
from rltrain.weight_sync.device_slots import DeviceSlot  # noqa: E402
from rltrain.weight_sync.sender import BucketSender, tensor_spec  # noqa: E402
from rltrain.weight_sync.sides import WeightsOffer  # noqa: E402
from rltrain.weight_sync.slots import Slot  # noqa: E402

ACTOR, REFERENCE = "actor", "reference"


class TrainWorker:
    """`join` comes first; then every rank gets the same calls in the same order."""

    def __init__(self, setup: TrainSetup) -> None:
        self._setup = setup
        self._spec = ModelSpec.read(setup.role.model.path)
        self._rank = 0
        self._sender: BucketSender | None = None
        self._profiler = Profiler(None, setup.profile_directory, process="trainer")

    @shim.on_device
    def join(self, *, rank: int, world_size: int, address: str, port: int) -> WorkerInfo:
        """Makes the process group and the model. Raises UserError for weights and settings that don't fit."""
        setup = self._setup
        self._rank = rank
        self._profiler = Profiler(setup.profile, setup.profile_directory, process=f"trainer-{rank}")
        device = use_device(setup.device)
        torch.use_deterministic_algorithms(setup.deterministic)
        store = make_store(address, port, rank=rank, world_size=world_size)
        dist.init_process_group(collective_backend(setup.device), store=store, rank=rank, world_size=world_size)
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        model_parallel_cuda_manual_seed(setup.seed)
        self._parts = _build(setup, self._spec, device)
        self._stash = WeightStash(self._parts.model)
        if setup.needs_reference:
            self._keep_reference()
        self._step = UpdateStep(
            self._parts,
            PolicyObjective(setup.algorithm),
            setup.role.optimizer,
            temperature=setup.temperature,
            total_updates=setup.total_updates,
        )
        return WorkerInfo(pid=os.getpid(), device=str(device), num_parameters=self._spec.num_parameters)

    @shim.on_device
    def logprobs(
        self, batch: RolloutBatch, plan: StepPlan, *, model: str
    ) -> tuple[npt.NDArray[np.int64], Ragged[np.float32]]:
        """Sample numbers of this rank and the log-probs of their response tokens under `actor` or `reference`.

        Samples that the plan leaves out come from rank 0, with zeros.
        """
        with self._profiler.part(f"logprobs-{model}", step=batch.step), self._yielding():
            if model == ACTOR:
                return self._logprobs(batch, plan)
            with self._stash.loaded(model):
                return self._logprobs(batch, plan)

    @shim.on_device
    def update(self, batch: RolloutBatch, plan: StepPlan) -> Metrics:
        """One optimizer step for each of the plan's; this rank's part of the metrics."""
        with self._profiler.part("update", step=batch.step), self._yielding():
            metrics = merged([self._step.run(batch, step, rank=self._rank) for step in plan.steps])
        if self._parts.device.type == "cuda":
            metrics["memory/trainer_gpu_peak_bytes"] = Max(float(torch.cuda.max_memory_allocated()))
        if self._rank == 0:
            metrics["tokens/trained"] = Mean(float(sum(step.num_loss_tokens for step in plan.steps)), 1)
        return metrics

    @shim.on_device
    def score(self, token_ids: Ids) -> Floats:
        """Log-probs of `token_ids[1:]` at temperature 1."""
        num_pairs = len(token_ids) - 1
        rows = PackedRows(
            tokens_T=token_ids,
            positions_T=np.arange(len(token_ids), dtype=np.int32),
            rows_E=np.arange(len(token_ids)),
            cu_seqlens=np.array([0, len(token_ids)], np.int32),
            row_P=np.arange(num_pairs),
            target_P=token_ids[1:].astype(np.int64),
            sample_P=np.zeros(num_pairs, np.int64),
            t_P=np.arange(num_pairs),
        )
        return self._score(rows, temperature=1.0)

    @shim.on_device
    def offer_weights(self) -> WeightsOffer:
        """Makes the slots that weights go through."""
        specs = [tensor_spec(name, tensor) for name, tensor in self._tensors()]
        self._sender = BucketSender(
            specs,
            self._tensors,
            self._setup.weight_sync.bucket_bytes or self._setup.bucket_bytes,
            make_slot=DeviceSlot if self._setup.shares_gpu else Slot,
        )
        return WeightsOffer(self._sender.plan, tuple(self._sender.slot_paths()))

    @shim.on_device
    def write_bucket(self, index: int, *, verify: bool) -> int | None:
        assert self._sender is not None, "offer_weights() comes first"
        return self._sender.write(index, verify=verify)

    @shim.on_device
    def export_hf(self, directory: str) -> None:
        """Rank 0 writes the weights as a Hugging Face directory."""
        model = self._setup.role.model
        if self._rank == 0:
            write_hf_directory(Path(directory), self._tensors(), source=model.path, dtype=model.dtype)

    @shim.on_device
    def close(self) -> None:
        """Also after a `join` that failed."""
        if self._sender is not None:
            self._sender.close()
        if dist.is_initialized():
            parallel_state.destroy_model_parallel()
            dist.destroy_process_group()

    @contextmanager
    def _yielding(self) -> Generator[None]:
        """Afterwards the GPU has what this process's allocator only kept."""
        yield
        if self._setup.yields_memory and self._parts.device.type == "cuda":
            torch.cuda.empty_cache()

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        return hf_tensors(self._parts.model, self._spec)

    def _keep_reference(self) -> None:
        path = self._setup.reference_path
        if path is None:
            self._stash.save(REFERENCE)
            return
        with self._stash.restored():
            load_weights(self._parts.model, self._spec, path, key="algorithm.kl.reference")
            self._stash.save(REFERENCE)

    def _logprobs(self, batch: RolloutBatch, plan: StepPlan) -> tuple[npt.NDArray[np.int64], Ragged[np.float32]]:
        numbers: list[int] = []
        columns: list[Floats] = []
        for micro_batch in (m for step in plan.steps for m in step.micro_batches[self._rank] if m):
            columns.append(self._score(pack(batch, micro_batch), temperature=self._setup.temperature))
            numbers.extend(micro_batch)
        if self._rank == 0:
            left_out = np.setdiff1d(np.arange(len(batch)), _planned(plan))
            numbers.extend(left_out.tolist())
            columns.append(np.zeros(int(batch.response_ids.lengths[left_out].sum()), np.float32))
        order = np.array(numbers, np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(batch.response_ids.lengths[order])])
        return order, Ragged(np.concatenate([np.zeros(0, np.float32), *columns]), offsets)

    @torch.no_grad()
    def _score(self, rows: PackedRows, *, temperature: float) -> Floats:
        parts = self._parts
        hidden = hidden_states(parts.model, rows, device=parts.device, dtype=parts.dtype)
        return scored(parts, hidden, rows, temperature=temperature)[0].cpu().numpy()


def _build(setup: TrainSetup, spec: ModelSpec, device: torch.device) -> Trainable:
    role = setup.role
    args = megatron_args(role, spec, device=device.type)
    model: Any = HiddenStateModel(args.transformer, spec, device=device).to(device)
    if role.model.init == "random":
        draw_weights(model, spec, seed=setup.seed)
    else:
        load_weights(model, spec, role.model.path, key="actor.model.path")
    wrapped = DistributedDataParallel(args.transformer, args.ddp, model)
    optimizer = make_optimizer(args, wrapped)
    group = parallel_state.get_tensor_model_parallel_group()
    return Trainable(model, wrapped, optimizer, device, DTYPES[role.model.dtype], group)


def _planned(plan: StepPlan) -> npt.NDArray[np.int64]:
    return np.array([n for step in plan.steps for rank in step.micro_batches for m in rank for n in m], np.int64)
