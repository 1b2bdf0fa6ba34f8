"""The one training loop: optimiser, schedule, precision, batches by length, events, resume.

It knows nothing of what is trained: a `Task` brings batches, the loss and the measurements. The loop
is a generator of events, so that a page, a command line, a test and a worker all consume the same
one; closing it stops the run within one step. The model it is given is the one it trains: callers
hand over a copy.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from core.errors import SettingError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

_GENERATOR = threading.Lock()  # torch's random state is the process's: one run's step at a time


@dataclass(frozen=True)
class TrainConfig:
    """How to optimise. Learning rates are peaks; the schedule scales them."""

    steps: int
    learning_rate: float = (
        5e-5  # within the 2e-5 to 5e-5 of Devlin et al. 2019 for a trained encoder
    )
    head_learning_rate: float | None = None  # a head that starts untrained bears a larger one
    warmup: float = 0.05  # share of the steps before the peak; Adam's moments are noise at first
    hold: float = 0.0  # share of the steps at the peak before the linear decay; 0 as in BERT
    betas: tuple[float, float] = (0.9, 0.98)  # RoBERTa's second beta: stable with large batches
    weight_decay: float = 0.01  # on matrices only, never on biases and LayerNorm
    clip: float = 1.0  # greatest norm of the gradient
    measure_every: int = 250  # steps between measurements; each costs a pass over held-out text
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise SettingError(f"Training needs at least 1 step, not {self.steps}.")
        if not 0 < self.learning_rate <= 0.1:
            raise SettingError(
                f"The learning rate must be above 0 and at most 0.1, not {self.learning_rate}."
            )
        if not (0 <= self.warmup <= 1 and 0 <= self.hold <= 1 and self.warmup + self.hold <= 1):
            raise SettingError("Warm-up and hold are shares of the steps that sum to 1 at most.")


@dataclass(frozen=True)
class StepDone:
    """One optimiser step. `loss` is the mean over the batch's targets, in nats."""

    step: int  # counted from 1
    steps: int
    loss: float
    learning_rate: float
    samples_per_second: float


@dataclass(frozen=True)
class StepSkipped:
    """A batch without a single target: nothing was learnt and no weight moved."""

    step: int
    steps: int


@dataclass(frozen=True)
class Measured:
    """The task's own measurements after a step; step 0 is before training."""

    step: int
    steps: int
    train_loss: float | None  # mean since the last measurement
    result: Any


@dataclass(frozen=True)
class Diverged:
    """The loss or its gradient is no longer a number: the run ends with the weights it had at its
    last measurement.
    """

    step: int
    steps: int
    restored: int  # the step of that measurement


@dataclass(frozen=True)
class Done:
    """The end of a run."""

    model: PreTrainedModel
    seconds: float


Event = StepDone | StepSkipped | Measured | Diverged | Done


class Task(Protocol):
    """What is trained. Batches depend on the epoch alone, so that a run can be resumed."""

    def batches(self, epoch: int) -> Iterator[Any]: ...

    def loss(self, model: PreTrainedModel, batch: Any, step: int) -> torch.Tensor | None:
        """Mean loss of a batch, or None where it has no target."""

    def size(self, batch: Any) -> int:
        """Samples in a batch, in the unit of the reported speed."""

    def measure(self, model: PreTrainedModel) -> Any: ...


def never() -> bool:
    """A run that is not to be stopped."""
    return False


def train(
    model: PreTrainedModel,
    task: Task,
    config: TrainConfig,
    *,
    checkpoint: Path | None = None,
    stop: Callable[[], bool] = never,
) -> Iterator[Event]:
    """Train `model` in place. With `checkpoint`, a folder, the run is saved there at every
    measurement, and one that was stopped goes on from there as if it had never been. `stop` is asked
    before each step; where it says so, the run ends with the model as it is. A run that diverges
    ends with `Diverged`, then `Done`; to go back, a copy of the trained weights is kept in memory.
    """
    optimizer = make_optimizer(model, config)
    state = _Progress()
    if checkpoint is not None and (checkpoint / "progress.json").is_file():
        state = load_checkpoint(checkpoint, model, optimizer)
    began = time.perf_counter()
    if state.step == 0:
        yield Measured(0, config.steps, None, _measured(model, task))
    good = _Weights(model, state.step)
    try:
        for step, batch in _numbered(task, state.step, config.steps):
            if stop():
                break
            started = time.perf_counter()
            model.train()
            _set_learning_rate(optimizer, step, config)
            with autocast(model):
                loss = task.loss(model, batch, step)
            if loss is None:
                yield StepSkipped(step, config.steps)
            elif not _update(model, optimizer, loss, config):
                good.restore(model)
                yield Diverged(step, config.steps, good.step)
                break
            else:
                state.losses.append(loss.item())
                rate = task.size(batch) / (time.perf_counter() - started)
                peak = config.learning_rate * schedule(step, config)
                yield StepDone(step, config.steps, state.losses[-1], peak, rate)
            state.step = step
            if step % config.measure_every == 0 or step == config.steps:
                mean = float(np.mean(state.losses)) if state.losses else None
                yield Measured(step, config.steps, mean, _measured(model, task))
                good = _Weights(model, step)
                state.losses.clear()
                if checkpoint is not None:
                    save_checkpoint(checkpoint, model, optimizer, state)
    finally:
        model.eval()
        optimizer.zero_grad(set_to_none=True)
        del optimizer
    yield Done(model, time.perf_counter() - began)


def schedule(step: int, config: TrainConfig) -> float:
    """Share of the peak learning rate at a step, counted from 1: up, hold, linearly down to zero.

    >>> [schedule(s, TrainConfig(steps=10, warmup=0.2)) for s in (1, 2, 6, 10)]
    [0.5, 1.0, 0.5, 0.0]
    """
    up = config.warmup * config.steps
    hold = up + config.hold * config.steps
    if step < up:
        return step / up
    if step <= hold:
        return 1.0
    return max(0.0, (config.steps - step) / max(1.0, config.steps - hold))


def make_optimizer(model: PreTrainedModel, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019); biases and LayerNorm are not decayed."""
    import torch

    base = {id(p) for p in model.base_model.parameters()}
    head_rate = config.head_learning_rate or config.learning_rate
    groups = []
    for rate, inside in ((config.learning_rate, True), (head_rate, False)):
        mine = [p for p in model.parameters() if p.requires_grad and (id(p) in base) is inside]
        for decay, matrices in ((config.weight_decay, True), (0.0, False)):
            chosen = [p for p in mine if (p.ndim > 1) is matrices]
            if chosen:
                groups.append({"params": chosen, "lr": rate, "peak": rate, "weight_decay": decay})
    return torch.optim.AdamW(groups, betas=config.betas, fused=True)


def autocast(model: PreTrainedModel) -> AbstractContextManager[Any]:
    """bfloat16 where the processor multiplies it in hardware, else float32.

    Without such hardware bfloat16 is emulated, and was 7 times slower than float32.
    """
    import torch

    device = next(model.parameters()).device.type
    if not has_bfloat16(device):
        return nullcontext()
    return torch.autocast(device, torch.bfloat16)


def has_bfloat16(device: str) -> bool:
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def by_length(
    lengths: np.ndarray, *, batch_tokens: int, seed: Any, pool: int = 64
) -> list[np.ndarray]:
    """Batches of indices, alike in length, in random order; each holds about `batch_tokens`.

    Items are shuffled, cut into pools worth `pool` batches, and sorted within a pool only, so that
    little is padded and a batch still differs from pass to pass.

    >>> [batch.tolist() for batch in by_length(np.array([2, 9, 2]), batch_tokens=9, seed=0)]
    [[1], [2, 0]]
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths))
    pools = np.array_split(order, max(1, math.ceil(lengths.sum() / (batch_tokens * pool))))
    batches: list[np.ndarray] = []
    for members in pools:
        members = members[np.argsort(lengths[members], kind="stable")]
        start = 0
        while start < len(members):
            longest = np.arange(1, len(members) - start + 1) * lengths[members[start:]]
            size = max(1, int(np.searchsorted(longest, batch_tokens, side="right")))
            batches.append(members[start : start + size])
            start += size
    return [batches[i] for i in rng.permutation(len(batches))]


def rows_by_length(lengths: np.ndarray, *, rows: int, seed: Any, pool: int = 8) -> list[np.ndarray]:
    """As `by_length`, in batches of so many rows whatever their length; the last one may have fewer.

    >>> [batch.tolist() for batch in rows_by_length(np.array([2, 9, 2, 8]), rows=2, seed=0)]
    [[3, 1], [2, 0]]
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lengths))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), rows * pool):
        members = order[start : start + rows * pool]
        members = members[np.argsort(lengths[members], kind="stable")]
        batches += [members[i : i + rows] for i in range(0, len(members), rows)]
    return [batches[i] for i in rng.permutation(len(batches))]


def seeded(events: Iterator[Event], seed: int) -> Iterator[Event]:
    """Events under a random state of their own: dropout draws from torch's one generator, and
    whatever others draw in between, the same seed gives the same run. One step at a time.
    """
    import torch

    with _GENERATOR, torch.random.fork_rng():
        torch.manual_seed(seed)
        state = torch.get_rng_state()
    while True:
        with _GENERATOR, torch.random.fork_rng():
            torch.set_rng_state(state)
            event = next(events, None)
            state = torch.get_rng_state()
        if event is None:
            return
        yield event


def as_record(event: Event) -> dict[str, Any] | None:
    """A step or a divergence as plain data; other events are their tasks' affair."""
    match event:
        case StepDone():
            return {
                "event": "step",
                "step": event.step,
                "loss": event.loss,
                "learning_rate": event.learning_rate,
                "samples_per_second": event.samples_per_second,
            }
        case Diverged():
            return {"event": "diverged", "step": event.step, "restored": event.restored}
    return None


@dataclass
class _Progress:
    step: int = 0
    losses: list[float] = field(default_factory=list)


def _numbered(task: Task, done: int, steps: int) -> Iterator[tuple[int, Any]]:
    """Batches with their step, pass after pass, without those that are already done."""
    step = epoch = 0
    while step < steps:
        epoch += 1
        before = step
        for batch in task.batches(epoch):
            step += 1
            if step > steps:
                return
            if step > done:
                yield step, batch
        if step == before:
            raise SettingError("There is nothing to train on: the text gives no batch.")


def _update(model: Any, optimizer: Any, loss: torch.Tensor, config: TrainConfig) -> bool:
    """One step down the gradient; False, and no step, where it is not a number."""
    import torch

    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    if not (torch.isfinite(loss) and torch.isfinite(norm)):
        return False
    optimizer.step()
    return True


class _Weights:
    """A copy of the weights that are trained, as they were after a step."""

    def __init__(self, model: PreTrainedModel, step: int) -> None:
        self.step = step
        self._kept = {
            name: value.detach().clone()
            for name, value in model.named_parameters()
            if value.requires_grad
        }

    def restore(self, model: PreTrainedModel) -> None:
        import torch

        with torch.no_grad():
            for name, value in model.named_parameters():
                if name in self._kept:
                    value.copy_(self._kept[name])


def _set_learning_rate(optimizer: Any, step: int, config: TrainConfig) -> None:
    scale = schedule(step, config)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * scale


def _measured(model: PreTrainedModel, task: Task) -> Any:
    """Measure in evaluation mode, without gradients, and leave the mode as it was."""
    import torch

    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode(), autocast(model):
            return task.measure(model)
    finally:
        model.train(was_training)


def save_checkpoint(folder: Path, model: PreTrainedModel, optimizer: Any, state: _Progress) -> None:
    """Weights and the optimiser's moments as safetensors; the last file written makes it valid."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    moments = {
        f"{i}.{name}": value
        for i, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
    }
    model.save_pretrained(folder / "model")
    save_file(moments, folder / "optimizer.safetensors")
    partial = folder / "progress.json.partial"
    partial.write_text(json.dumps({"step": state.step}))
    partial.replace(folder / "progress.json")


def load_checkpoint(folder: Path, model: PreTrainedModel, optimizer: Any) -> _Progress:
    """Put weights and moments back in place; raises `SettingError` if they are another model's."""
    from safetensors.torch import load_file, load_model

    load_model(model, str(folder / "model" / "model.safetensors"))
    state: dict[int, dict[str, Any]] = {}
    for key, value in load_file(folder / "optimizer.safetensors").items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    if len(state) > sum(len(group["params"]) for group in groups):
        raise SettingError(f"{folder} holds the checkpoint of another model.")
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return _Progress(step=json.loads((folder / "progress.json").read_text())["step"])
