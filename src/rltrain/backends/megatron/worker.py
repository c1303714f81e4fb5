"""One rank of the actor: its model, optimizer and weights. It knows no Ray; `cluster` puts it into an actor."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from rltrain.backends.megatron import shim
from rltrain.backends.megatron.setup import SavedStart, TrainSetup, WorkerInfo
from rltrain.device import collective_backend, use_device

shim.install()

from megatron.core import parallel_state  # noqa: E402 - after the shim
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed  # noqa: E402

from rltrain.algorithms.objective import PolicyObjective  # noqa: E402
from rltrain.backends.megatron.args import DTYPES  # noqa: E402
from rltrain.backends.megatron.convert.gather import hf_tensors  # noqa: E402
from rltrain.backends.megatron.convert.load import draw_weights, load_weights  # noqa: E402
from rltrain.backends.megatron.convert.tensors import hf_layout  # noqa: E402
from rltrain.backends.megatron.micro_batch import MicroBatch, micro_batches_of  # noqa: E402
from rltrain.backends.megatron.model import HiddenStateModel  # noqa: E402
from rltrain.backends.megatron.passes import logprobs  # noqa: E402
from rltrain.backends.megatron.ranks import join_groups  # noqa: E402
from rltrain.backends.megatron.rendezvous import make_store  # noqa: E402
from rltrain.backends.megatron.saving import model_pieces, random_pieces, restore, restore_random  # noqa: E402
from rltrain.backends.megatron.stash import WeightStash  # noqa: E402
from rltrain.backends.megatron.step import UpdateStep  # noqa: E402
from rltrain.backends.megatron.trainable import build  # noqa: E402
from rltrain.checkpoint.hf_writer import write_hf_directory  # noqa: E402
from rltrain.checkpoint.manifest import Damaged, FileFacts  # noqa: E402
from rltrain.checkpoint.pieces import SUFFIX, SavedTensors  # noqa: E402
from rltrain.checkpoint.writer import PieceWriter  # noqa: E402
from rltrain.config.errors import UserError  # noqa: E402
from rltrain.data.plan import in_lockstep  # noqa: E402
from rltrain.telemetry.profiler import Profiler  # noqa: E402
from rltrain.types.batch import Ragged, RolloutBatch, StepPlan  # noqa: E402
from rltrain.types.metrics import Max, Mean, Metrics, merged  # noqa: E402
from rltrain.types.model_spec import ModelSpec  # noqa: E402
from rltrain.types.sample import Floats, Ids  # noqa: E402
from rltrain.weight_sync.checksum import tensors_digest  # noqa: E402
from rltrain.weight_sync.device_slots import DeviceSlot  # noqa: E402
from rltrain.weight_sync.sender import BucketFollower, BucketSender, tensor_spec  # noqa: E402
from rltrain.weight_sync.sides import WeightsOffer  # noqa: E402
from rltrain.weight_sync.slots import Slot  # noqa: E402

ACTOR, REFERENCE = "actor", "reference"
T = TypeVar("T")


class TrainWorker:
    """`join` comes first; then every rank gets the same calls in the same order."""

    def __init__(self, setup: TrainSetup) -> None:
        self._setup = setup
        self._spec = ModelSpec.read(setup.role.model.path)
        self._rank = 0
        self._writer = PieceWriter()
        self._sender: BucketSender | BucketFollower | None = None
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
        place = join_groups(setup.role.parallel)
        # Another worker of this process may have seeded it before.
        model_parallel_cuda_manual_seed(setup.seed, force_reset_rng=True)
        self._parts = build(setup, self._spec, place, device, fill=self._fill)
        self._stash = WeightStash(self._parts.chunks)
        if setup.needs_reference:
            self._keep_reference()
        self._step = UpdateStep(
            self._parts,
            PolicyObjective(setup.algorithm),
            setup.role.optimizer,
            temperature=setup.temperature,
            total_updates=setup.total_updates,
        )
        if setup.start is not None:
            self._restore(setup.start)
        return WorkerInfo(pid=os.getpid(), device=str(device), num_parameters=self._spec.num_parameters)

    @shim.on_device
    def logprobs(
        self, batch: RolloutBatch, plan: StepPlan, *, model: str
    ) -> tuple[npt.NDArray[np.int64], Ragged[np.float32]]:
        """Sample numbers of this rank and the log-probs of their response tokens under `actor` or `reference`.

        One of the ranks that share samples gives theirs. Those that the plan leaves out come from rank 0, with zeros.
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
            self._parts.settle()
        if self._parts.device.type == "cuda":
            metrics["memory/trainer_gpu_peak_bytes"] = Max(float(torch.cuda.max_memory_allocated()))
        if self._rank == 0:
            metrics["tokens/trained"] = Mean(float(sum(step.num_loss_tokens for step in plan.steps)), 1)
        return metrics

    @shim.on_device
    def score(self, token_ids: Ids) -> Floats | None:
        """Log-probs of `token_ids[1:]` at temperature 1, from one of the ranks."""
        parallel = self._setup.role.parallel
        (numbers,) = in_lockstep([[(0,)]], multiple_of=parallel.micro_batch_multiple)
        alone = RolloutBatch.of_sequence(token_ids)
        found = logprobs(self._parts, [MicroBatch(alone, n, self._parts) for n in numbers], temperature=1.0)
        return found[0] if self._parts.place.reports and self._parts.place.data_rank == 0 else None

    @shim.on_device
    def reference_digest(self) -> str | None:
        """Of the reference's weights, the same for every layout; from rank 0. Collective."""
        with self._stash.loaded(REFERENCE):
            return self._on_first(tensors_digest)

    @shim.on_device
    def offer_weights(self) -> WeightsOffer | None:
        """Makes the slots that weights go through, on rank 0; ranks that hold parts of them get ready to give them."""
        if not self._gives_weights:
            return None
        specs = [tensor_spec(name, tensor) for name, tensor in self._tensors()]
        bucket_bytes = self._setup.weight_sync.bucket_bytes or self._setup.bucket_bytes
        if self._rank != 0:
            self._sender = BucketFollower(specs, self._tensors, bucket_bytes)
            return None
        make_slot = DeviceSlot if self._setup.shares_gpu else Slot
        self._sender = sender = BucketSender(specs, self._tensors, bucket_bytes, make_slot=make_slot)
        return WeightsOffer(sender.plan, tuple(sender.slot_paths()))

    @shim.on_device
    def write_bucket(self, index: int, *, verify: bool) -> int | None:
        """What rank 0's sender says; nothing on others."""
        if not self._gives_weights:
            return None
        assert self._sender is not None, "offer_weights() comes first"
        return self._sender.write(index, verify=verify)

    @shim.on_device
    def export_hf(self, directory: str) -> None:
        """Rank 0 writes the weights as a Hugging Face directory, in place of one that is there."""
        model = self._setup.role.model
        layout = hf_layout(self._spec, DTYPES[model.dtype])
        self._on_first(
            lambda values: write_hf_directory(
                Path(directory), layout, values, source=model.path, dtype=model.dtype, replace=True
            )
        )

    @shim.on_device
    def save(self, directory: str, *, moments: bool) -> int:
        """Copies this rank's part of the weights, and with `moments` of the optimizer, and starts to write it.

        Returns the updates done so far. Collective. `finish_save` comes before the next one.
        """
        pieces = [*model_pieces(self._parts, self._spec, moments=moments), *random_pieces(self._rank)]
        self._writer.start(Path(directory) / f"rank_{self._rank:05}{SUFFIX}", pieces)
        return self._step.num_done

    def finish_save(self) -> tuple[str, FileFacts]:
        """Waits for the file that `save` started; may be called beside other calls.

        Its name and facts. Raises what `PieceWriter.finish` does.
        """
        return f"rank_{self._rank:05}{SUFFIX}", self._writer.finish()

    @shim.on_device
    def close(self) -> None:
        """Also after a `join` that failed."""
        self._writer.close()
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

    @property
    def _gives_weights(self) -> bool:
        """Whether rank 0 needs this one to gather the weights; experts are spread over copies of the rest."""
        place = self._parts.place
        return self._setup.role.parallel.expert > 1 or (place.data_rank == 0 and place.context_rank == 0)

    def _on_first(self, use: Callable[[Iterator[tuple[str, torch.Tensor]]], T]) -> T | None:
        """What rank 0 makes of the whole tensors, which other ranks help to gather. Collective."""
        if self._rank == 0:
            return use(self._tensors())
        if self._gives_weights:
            deque(self._tensors(), maxlen=0)
        return None

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        return hf_tensors(self._parts.chunks, self._spec)

    def _fill(self, chunks: tuple[HiddenStateModel, ...]) -> None:
        setup, model = self._setup, self._setup.role.model
        if setup.start is not None and (setup.reference_path is not None or not setup.needs_reference):
            return  # the saved weights come to all of it
        if model.init == "random":
            draw_weights(chunks, self._spec, seed=self._setup.seed)
        else:
            load_weights(chunks, self._spec, model.path, key="actor.model.path")

    def _keep_reference(self) -> None:
        path = self._setup.reference_path
        if path is None:
            self._stash.save(REFERENCE)
            return
        with self._stash.restored():
            load_weights(self._parts.chunks, self._spec, path, key="algorithm.kl.reference")
            self._stash.save(REFERENCE)

    def _restore(self, start: SavedStart) -> None:
        """After the reference was kept: that is the base of the run's first start."""
        try:
            saved = SavedTensors(start.directory)
        except Damaged as error:
            raise UserError.single(start.key, str(error), value=start.directory) from error
        restore(self._parts, self._spec, saved, moments=start.moments, key=start.key)
        restore_random(saved, rank=self._rank, ranks=dist.get_world_size())
        if start.moments:
            self._step.resume(start.num_updates)

    def _logprobs(self, batch: RolloutBatch, plan: StepPlan) -> tuple[npt.NDArray[np.int64], Ragged[np.float32]]:
        parts = self._parts
        mine = [one for step in plan.steps for one in micro_batches_of(batch, step, parts)]
        found = logprobs(parts, mine, temperature=self._setup.temperature) if mine else []
        numbers: list[int] = []
        columns: list[Floats] = []
        if parts.place.reports:
            numbers, columns = [number for one in mine for number in one.numbers], found
        if self._rank == 0:
            left_out = np.setdiff1d(np.arange(len(batch)), _planned(plan))
            numbers.extend(left_out.tolist())
            columns.append(np.zeros(int(batch.response_ids.lengths[left_out].sum()), np.float32))
        values = np.concatenate([np.zeros(0, np.float32), *columns])
        lengths = batch.response_ids.lengths[numbers] if numbers else np.zeros(0, np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return np.array(numbers, np.int64), Ragged(values, offsets)


def _planned(plan: StepPlan) -> npt.NDArray[np.int64]:
    return np.array([n for step in plan.steps for rank in step.micro_batches for m in rank for n in m], np.int64)
