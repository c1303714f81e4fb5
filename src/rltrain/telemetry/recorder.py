"""All that a run writes and shows, behind four calls of the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rltrain.config.namespace import Args
from rltrain.telemetry.display import Display, num_samples_due
from rltrain.telemetry.memory import memory_metrics
from rltrain.telemetry.notes import truncation_note
from rltrain.telemetry.progress import SampleText
from rltrain.telemetry.rollout_files import write_rollout
from rltrain.telemetry.run_directory import RunDirectory
from rltrain.telemetry.sinks import Sink
from rltrain.telemetry.step_metrics import rollout_metrics
from rltrain.types.batch import RolloutBatch
from rltrain.types.sample import Ids, SampleGroup


class Recorder:
    """Writes metrics and samples and feeds the display. `processes` are process ids on this machine by name."""

    def __init__(
        self,
        args: Args,
        directory: RunDirectory,
        *,
        sink: Sink,
        display: Display,
        decode: Callable[[Ids], str],
        processes: Mapping[str, int],
    ) -> None:
        self._telemetry = args.telemetry
        self._max_tokens = args.rollout.max_tokens
        self._directory = directory
        self._sink = sink
        self._display = display
        self._decode = decode
        self._processes = processes

    def record_start(self, metrics: Mapping[str, float], *, times: Mapping[str, float]) -> dict[str, float]:
        """The line of step 0: the first weight sync and, if asked for, the first evaluation."""
        whole = {**metrics, **times, **memory_metrics(self._processes)}
        self._sink.write(0, whole)
        self._show_evaluation(0, metrics)
        return whole

    def record_step(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        times: Mapping[str, float],
        groups: Sequence[SampleGroup],
        batch: RolloutBatch,
    ) -> dict[str, float]:
        """A step's samples, its line of metrics and what is shown of both; the line, with the rollout's own metrics."""
        if self._telemetry.rollouts:
            self._save_rollout(step, groups, batch)
        sampled = rollout_metrics(groups, version=batch.version)
        throughput = {"throughput/tokens_per_s": sampled.get("tokens/generated", 0.0) / times["time/step_s"]}
        whole = {**sampled, **metrics, **times, **throughput, **memory_metrics(self._processes)}
        self._sink.write(step, whole)
        self._display.step(step, whole)
        note = truncation_note(whole, max_tokens=self._max_tokens) if step == 1 else None
        if note is not None:
            self._display.note(note)
        evaluated = self._show_evaluation(step, metrics)
        due = num_samples_due(step, evaluated=evaluated, show_samples=self._telemetry.show_samples)
        if due:
            self._display.samples(step, self._sample_texts(groups[:due]))
        return whole

    def _save_rollout(self, step: int, groups: Sequence[SampleGroup], batch: RolloutBatch) -> None:
        responses_B = [self._decode(sample.response_ids) for group in groups for sample in group.samples]
        rows = (batch.advantages[number] for number in range(len(batch)))
        advantages_B = [float(row[0]) if len(row) else 0.0 for row in rows]
        path = self._directory.rollout(step)
        write_rollout(path, groups, step=step, advantages_B=advantages_B, responses_B=responses_B)

    def _show_evaluation(self, step: int, metrics: Mapping[str, float]) -> bool:
        """Whether there was one."""
        found = {key: value for key, value in metrics.items() if key.startswith("eval/")}
        if found:
            self._display.evaluation(step, found)
        return bool(found)

    def _sample_texts(self, groups: Sequence[SampleGroup]) -> list[SampleText]:
        return [
            SampleText(
                prompt=self._decode(group.prompt.token_ids),
                response=self._decode(group.samples[0].response_ids),
                label=group.prompt.label,
                reward=group.samples[0].reward,
            )
            for group in groups
        ]
