"""Sequence classification on top of `training`: fine-tune a copy of a model.

What a classifier is, and labelling with it, is in `classifier`; figures are in `metrics`; reading
and checking files of data is left to `datasets`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core import classifier, training
from core.classifier import Classifier, classify
from core.errors import SettingError
from core.metrics import confusion_matrix, macro_f1
from core.models import LoadedModel, share_weights
from core.runs import Job, Record

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from transformers import PreTrainedModel

__all__ = ["Classifier", "Done", "Epoch", "FinetuneConfig", "classify", "finetune"]


@dataclass(frozen=True)
class FinetuneConfig:
    """Defaults as recommended in appendix A.3 of Devlin et al. 2019."""

    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 5e-5
    head_factor: float = 20.0  # the head starts untrained: its rate is so many times the encoder's
    frozen: bool = False  # train the head only
    balanced: bool = False  # weigh each label's rows by the inverse of their number
    patience: int | None = None  # epochs without a lower held-out loss before it ends
    warmup: float = 0.1  # share of the steps
    max_tokens: int = 128  # longer texts are cut there
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.epochs <= 100:
            raise SettingError(f"The epochs must be 1 to 100, not {self.epochs}.")
        if not 1 <= self.batch_size <= 1024:
            raise SettingError(f"The batch size must be 1 to 1024, not {self.batch_size}.")
        if not 0 < self.learning_rate <= 0.1:
            raise SettingError(
                f"The learning rate must be above 0 and at most 0.1, not {self.learning_rate}."
            )
        if self.patience is not None and self.patience < 1:
            raise SettingError(f"The patience must be 1 epoch at least, not {self.patience}.")


@dataclass(frozen=True)
class Epoch:
    """Measurements after an epoch, on the held-out rows; number 0 is the untrained head."""

    number: int
    train_loss: float | None  # mean over the epoch's steps; none before the first
    held_out_loss: float
    accuracy: float
    macro_f1: float  # mean over the labels of 2 tp / (2 tp + fp + fn), 0 where a label has none
    confusion: np.ndarray  # (labels, labels): row = true, column = predicted
    predicted: np.ndarray  # (rows,) label numbers
    confidence: np.ndarray  # (rows,) probability of the predicted label
    examples: np.ndarray  # (examples, labels) probabilities


@dataclass(frozen=True)
class Done:
    result: Classifier
    seconds: float


Event = training.StepDone | training.Diverged | Epoch | Done


def finetune(
    m: LoadedModel,
    train: pd.DataFrame,
    test: pd.DataFrame,
    config: FinetuneConfig = FinetuneConfig(),
    *,
    examples: Sequence[str] = (),
    stop: Callable[[], bool] = training.never,
) -> Iterator[Event]:
    """Fine-tune a copy of a model on frames with the columns text and label.

    Yields a `StepDone` for each step, an `Epoch` before training and after each epoch, and `Done`;
    before it `Diverged`, where the loss was no longer a number and the last epoch was restored.
    `examples` are texts whose probabilities each `Epoch` reports. Where `stop` says so, the run ends
    after its step with what it has; closing the generator ends it without. `m` is never changed.

    Raises `SettingError` where there is nothing to learn: no rows, one label only, or a label of the
    test rows that training never sees.
    """
    labels = label_names(train, test)
    made = classifier.untrained(m, labels, max_tokens=config.max_tokens, seed=config.seed)
    task = _task(made, train, test, config, examples)
    return _events(made, task, config, stop)


def steps_per_epoch(rows: int, config: FinetuneConfig) -> int:
    """
    >>> steps_per_epoch(33, FinetuneConfig(batch_size=16))
    3
    """
    return -(-rows // config.batch_size)


def job(
    m: LoadedModel,
    train: pd.DataFrame,
    test: pd.DataFrame,
    config: FinetuneConfig,
    *,
    examples: Sequence[str] = (),
    share: float = 0.25,
) -> Job:
    """Fine-tuning as a background run; what can be refused is refused here. `share` is that of the
    test rows, to be told.
    """
    labels = label_names(train, test)
    about = {
        "model": m.info.name,
        "weights": m.weights_hash,
        "config": asdict(config),
        "labels": list(labels),
        "share": share,
        "train_rows": len(train),
        "cut": _cut(m, [*train["text"], *test["text"]], config.max_tokens),
        "train_counts": {label: int((train["label"] == label).sum()) for label in labels},
        "test": test[["text", "label"]].to_dict("list"),
        "examples": list(examples),
    }
    return Job(
        kind="finetuning",
        steps=config.epochs * steps_per_epoch(len(train), config),
        start=lambda stop: finetune(m, train, test, config, examples=examples, stop=stop),
        record=as_record,
        save=partial(_save, about),
        about=about,
    )


def _cut(m: LoadedModel, texts: Sequence[str], max_tokens: int) -> int:
    """How many texts have more tokens than are read."""
    encodings = m.backend.encode_batch([str(text) for text in texts])
    return sum(len(encoding.ids) > min(max_tokens, m.info.max_tokens) for encoding in encodings)


def as_record(event: Event) -> Record | None:
    """An event as plain data."""
    match event:
        case training.StepDone() | training.Diverged():
            return training.as_record(event)
        case Epoch():
            fields = {
                name: value.round(6).tolist() if isinstance(value, np.ndarray) else value
                for name, value in asdict(event).items()
            }
            return {"event": "epoch", **fields}
    return None


def epochs_in(records: Sequence[Record]) -> list[Epoch]:
    """The epochs among the records of a run."""
    return [_epoch(record) for record in records if record["event"] == "epoch"]


def _epoch(record: Record) -> Epoch:
    fields: Record = {name: value for name, value in record.items() if name != "event"}
    for name in ("confusion", "predicted", "confidence", "examples"):
        fields[name] = np.array(fields[name])
    return Epoch(**fields)


def label_names(train: pd.DataFrame, test: pd.DataFrame) -> tuple[str, ...]:
    """The labels of the training rows, sorted; the frames are checked here, once."""
    for name, frame in (("training", train), ("test", test)):
        missing = {"text", "label"} - set(frame.columns)
        if missing:
            raise SettingError(f"The {name} rows have no column {' and '.join(sorted(missing))}.")
        if not len(frame):
            raise SettingError(f"There are no {name} rows.")
    labels = tuple(sorted({str(label) for label in train["label"]}))
    if len(labels) < 2:
        raise SettingError(
            f"All training rows have the label “{labels[0]}”: nothing to tell apart."
        )
    unknown = sorted({str(label) for label in test["label"]} - set(labels))
    if unknown:
        raise SettingError(f"The test rows have labels that training lacks: {', '.join(unknown)}.")
    return labels


def _events(
    made: Classifier,
    task: _Classification,
    config: FinetuneConfig,
    stop: Callable[[], bool],
) -> Iterator[Event]:
    waited = _Patience(config.patience)
    steps = training.TrainConfig(
        steps=config.epochs * task.steps,
        learning_rate=config.learning_rate,
        head_learning_rate=config.head_factor * config.learning_rate,
        warmup=config.warmup,
        betas=(0.9, 0.999),
        measure_every=task.steps,
        seed=config.seed,
    )
    events = training.train(made.model, task, steps, stop=lambda: stop() or waited.over)
    for event in training.seeded(events, config.seed):
        match event:
            case training.StepDone() | training.Diverged():
                yield event
            case training.Measured():
                number = event.step // task.steps
                epoch = replace(event.result, number=number, train_loss=event.train_loss)
                waited.see(epoch, made.model)
                yield epoch
            case training.Done():
                waited.restore(made.model)
                yield Done(made, event.seconds)


class _Patience:
    """Ends a run whose held-out loss no longer falls, and goes back to its best epoch."""

    def __init__(self, patience: int | None) -> None:
        self._patience, self._loss, self._since = patience, float("inf"), 0
        self._best: dict[str, torch.Tensor] = {}

    @property
    def over(self) -> bool:
        return self._patience is not None and self._since >= self._patience

    def see(self, epoch: Epoch, model: PreTrainedModel) -> None:
        if self._patience is None:
            return
        self._since += 1
        if epoch.held_out_loss < self._loss:
            self._loss, self._since = epoch.held_out_loss, 0
            self._best = copy.deepcopy(model.state_dict())

    def restore(self, model: PreTrainedModel) -> None:
        if self._best:
            model.load_state_dict(self._best)


def _task(
    made: Classifier,
    train: pd.DataFrame,
    test: pd.DataFrame,
    config: FinetuneConfig,
    examples: Sequence[str],
) -> _Classification:
    kind = _FrozenClassification if config.frozen else _Classification
    return kind(made, train, test, config, examples)


class _Classification:
    """Sequence classification as a `training.Task`."""

    def __init__(
        self,
        made: Classifier,
        train: pd.DataFrame,
        test: pd.DataFrame,
        config: FinetuneConfig,
        examples: Sequence[str],
    ) -> None:
        number = {label: i for i, label in enumerate(made.labels)}
        self.made, self.config = made, config
        self.ids = classifier.encode(made, train["text"].tolist())
        self.test_ids = classifier.encode(made, [*test["text"], *examples])
        self.targets = np.array([number[str(label)] for label in train["label"]])
        self.test_targets = np.array([number[str(label)] for label in test["label"]])
        self.steps = steps_per_epoch(len(self.ids), config)
        self.weights = balancing(self.targets, len(number)) if config.balanced else None

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        lengths = np.array([len(row) for row in self.ids])
        seed = (self.config.seed, epoch)
        yield from training.rows_by_length(lengths, rows=self.config.batch_size, seed=seed)

    def size(self, batch: np.ndarray) -> int:
        return len(batch)

    def loss(self, model: PreTrainedModel, batch: np.ndarray, step: int) -> torch.Tensor:
        import torch

        logits = self._logits(model, batch).float()
        targets = torch.from_numpy(self.targets[batch]).to(logits.device)
        weights = None
        if self.weights is not None:
            weights = torch.from_numpy(self.weights).to(logits)
        return torch.nn.functional.cross_entropy(logits, targets, weight=weights)

    def measure(self, model: PreTrainedModel) -> Epoch:
        logs, rows = self._test_logs(model), len(self.test_targets)
        held, found = logs[:rows], logs[:rows].argmax(1)
        confusion = confusion_matrix(self.test_targets, found, len(self.made.labels))
        return Epoch(
            number=0,
            train_loss=None,
            held_out_loss=float(-held[np.arange(rows), self.test_targets].mean()),
            accuracy=float((found == self.test_targets).mean()),
            macro_f1=macro_f1(confusion),
            confusion=confusion,
            predicted=found,
            confidence=np.exp(held.max(1)),
            examples=np.exp(logs[rows:]),
        )

    def _logits(self, model: Any, batch: np.ndarray) -> torch.Tensor:
        return model(**classifier.inputs(self.made, [self.ids[i] for i in batch])).logits

    def _test_logs(self, model: PreTrainedModel) -> np.ndarray:
        """Log probabilities (test rows and examples, labels)."""
        out = np.zeros((len(self.test_ids), len(self.made.labels)))
        for rows, found in classifier.log_probabilities(self.made, self.test_ids):
            out[rows] = found
        return out


class _FrozenClassification(_Classification):
    """The encoder does not move, so its vectors are computed once and only the head runs."""

    def __init__(self, made: Classifier, *rest: Any) -> None:
        super().__init__(made, *rest)
        self.vectors = classifier.cls_vectors(made, self.ids)
        self.test_vectors = classifier.cls_vectors(made, self.test_ids)
        self.head = _head_alone(made.model)
        for name, parameter in made.model.base_model.named_parameters():
            parameter.requires_grad_(name.startswith("pooler."))

    def _logits(self, model: PreTrainedModel, batch: np.ndarray) -> torch.Tensor:
        self.head.train(model.training)
        return self.head(inputs_embeds=self.vectors[batch][:, None]).logits

    def _test_logs(self, model: PreTrainedModel) -> np.ndarray:
        self.head.train(model.training)
        logits = self.head(inputs_embeds=self.test_vectors[:, None]).logits
        return logits.float().log_softmax(-1).cpu().numpy()


def _head_alone(model: PreTrainedModel) -> Any:
    """The model's head, sharing its weights, on final [CLS] vectors given as `inputs_embeds`."""
    import torch
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    class Vectors(torch.nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.pooler = getattr(base, "pooler", None)
            self.activation = getattr(base, "pooler_activation", None)  # ALBERT's stands beside it

        def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> Any:
            pooled = inputs_embeds
            if self.activation is not None and self.pooler is not None:
                pooled = self.activation(self.pooler(inputs_embeds[:, 0]))
            elif self.pooler is not None:
                pooled = self.pooler(inputs_embeds)
            return BaseModelOutputWithPooling(last_hidden_state=inputs_embeds, pooler_output=pooled)

    twin = share_weights(model)
    setattr(twin, twin.base_model_prefix, Vectors(twin.base_model))
    return twin


def balancing(targets: np.ndarray, labels: int) -> np.ndarray:
    """Weights (labels,) inverse to a label's rows: rows / (labels x its rows), as in scikit-learn.

    >>> balancing(np.array([0, 0, 0, 1]), 2).round(3).tolist()
    [0.667, 2.0]
    """
    return len(targets) / (labels * np.bincount(targets, minlength=labels))


def _save(about: Record, event: Done, folder: Path) -> None:
    event.result.save(folder, card(about))


def card(about: Record) -> str:
    """The model card that goes with a classifier made here."""
    config, test = about["config"], about["test"]
    what = "its head only (encoder frozen)" if config["frozen"] else "all of it"
    labels = "\n".join(f"* `{label}`" for label in about["labels"])
    return f"""---
library_name: transformers
pipeline_tag: text-classification
---

# A text classifier, fine-tuned with Cloze

Made from `{about["model"]}` (weights {about["weights"]}) by training {what} for at most
{config["epochs"]} epochs on {about["train_rows"]} rows, {len(test["label"])} more being held out:
batches of {config["batch_size"]}, peak learning rate {config["learning_rate"]:g}, seed
{config["seed"]}. It reads the first {config["max_tokens"]} tokens of a text.

Labels:

{labels}

    transformers.pipeline("text-classification", model="model")

It knows what its rows taught it: try it on rows like those it will meet before you rely on it.
"""


if __name__ == "__main__":
    from core.finetuning_cli import main

    main()
