"""Sequence classification on top of `training`: fine-tune a copy of a model, classify with it.

The head is transformers' own for the family, so that what is saved loads there as it is. Reading and
checking files of data is left to `datasets`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core import training
from core.errors import SettingError
from core.exports import zipped
from core.models import LoadedModel

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FinetuneConfig:
    """Defaults as recommended in appendix A.3 of Devlin et al. 2019."""

    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 5e-5
    frozen: bool = False  # train the head only
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


@dataclass(frozen=True)
class Epoch:
    """Measurements after an epoch, on the held-out rows; number 0 is the untrained head."""

    number: int
    train_loss: float | None  # mean over the epoch's steps; none before the first
    held_out_loss: float
    accuracy: float
    macro_f1: float  # mean over the labels of 2 tp / (2 tp + fp + fn), 0 where a label has none
    confusion: np.ndarray  # (labels, labels): row = true, column = predicted


@dataclass(frozen=True)
class Classifier:
    """A fine-tuned model. `labels` are in the order of its outputs."""

    model: PreTrainedModel
    source: LoadedModel  # the model it was made from, and its tokenizer
    labels: tuple[str, ...]
    max_tokens: int

    def as_zip(self) -> bytes:
        """`save` as one file to take home."""
        return zipped(self.save)

    def save(self, folder: Path) -> None:
        """A folder that `transformers.pipeline("text-classification", model=folder)` loads."""
        self.model.save_pretrained(folder)
        self.source.tokenizer.save_pretrained(folder)


@dataclass(frozen=True)
class Done:
    result: Classifier
    seconds: float


Event = training.StepDone | Epoch | Done


def finetune(
    m: LoadedModel,
    train: pd.DataFrame,
    test: pd.DataFrame,
    config: FinetuneConfig = FinetuneConfig(),
) -> Iterator[Event]:
    """Fine-tune a copy of a model on frames with the columns text and label.

    Yields a `StepDone` for each step, an `Epoch` before training and after each epoch, and `Done`.
    Closing the generator stops the run within one step; `m` is never changed. Raises
    `SettingError` where there is nothing to learn: no rows, one label only, or a label of the test
    rows that training never sees.
    """
    labels = _labels(train, test)
    model = _with_new_head(m, labels, config)
    task = _Classification(m, train, test, labels, config)
    steps = training.TrainConfig(
        steps=config.epochs * task.steps_per_epoch,
        learning_rate=config.learning_rate,
        warmup=config.warmup,
        betas=(0.9, 0.999),
        measure_every=task.steps_per_epoch,
        seed=config.seed,
    )
    return _events(m, model, task, steps, labels, config)


def _events(
    m: LoadedModel,
    model: PreTrainedModel,
    task: _Classification,
    steps: training.TrainConfig,
    labels: tuple[str, ...],
    config: FinetuneConfig,
) -> Iterator[Event]:
    import torch

    with torch.random.fork_rng():  # dropout draws from torch's generator: same seed, same run
        torch.manual_seed(config.seed)
        state = torch.get_rng_state()
    for event in _seeded(training.train(model, task, steps), state):
        match event:
            case training.StepDone():
                yield event
            case training.Measured():
                number = event.step // task.steps_per_epoch
                yield replace(event.result, number=number, train_loss=event.train_loss)
            case training.Done():
                yield Done(Classifier(event.model, m, labels, config.max_tokens), event.seconds)


def _seeded(events: Iterator[training.Event], state: torch.Tensor) -> Iterator[training.Event]:
    """Run a generator under a random state of its own, whatever others draw in between."""
    import torch

    while True:
        with torch.random.fork_rng():
            torch.set_rng_state(state)
            event = next(events, None)
            state = torch.get_rng_state()
        if event is None:
            return
        yield event


def classify(
    classifier: Classifier, texts: Sequence[str], *, batch_tokens: int = 4096
) -> pd.DataFrame:
    """Label and probabilities of texts, in their order.

    Columns: text, label, probability (of that label), then "p: <label>" for each label.
    """
    import pandas as pd

    probabilities = np.exp(
        _log_probabilities(
            classifier.source, classifier.model, texts, classifier.max_tokens, batch_tokens
        )
    )
    best = probabilities.argmax(1)
    frame = pd.DataFrame(
        {
            "text": list(texts),
            "label": [classifier.labels[i] for i in best],
            "probability": probabilities.max(1),
        }
    )
    for i, label in enumerate(classifier.labels):
        frame[f"p: {label}"] = probabilities[:, i]
    return frame


def macro_f1(confusion: np.ndarray) -> float:
    """Mean F1 over the labels.

    >>> macro_f1(np.array([[2, 0], [0, 2]])), round(macro_f1(np.array([[0, 2], [0, 2]])), 4)
    (1.0, 0.3333)
    """
    hits = np.diag(confusion)
    either = confusion.sum(0) + confusion.sum(1)
    return float(np.mean(np.divide(2 * hits, either, where=either > 0, out=np.zeros(len(hits)))))


def wilson(hits: int, n: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927); it stays within 0 and 1 for any n.

    >>> tuple(round(x, 3) for x in wilson(8, 10))
    (0.49, 0.943)
    """
    z = 1.959964
    share, spread = hits / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    reach = z / (1 + spread) * (share * (1 - share) / n + spread / (4 * n)) ** 0.5
    return middle - reach, middle + reach


class _Classification:
    """Sequence classification as a `training.Task`."""

    def __init__(
        self,
        m: LoadedModel,
        train: pd.DataFrame,
        test: pd.DataFrame,
        labels: tuple[str, ...],
        config: FinetuneConfig,
    ) -> None:
        number = {label: i for i, label in enumerate(labels)}
        self.m, self.config, self.labels = m, config, labels
        self.ids = _encode(m, train["text"].tolist(), config.max_tokens)
        self.targets = np.array([number[str(label)] for label in train["label"]])
        self.test_texts = test["text"].tolist()
        self.test_targets = np.array([number[str(label)] for label in test["label"]])
        self.steps_per_epoch = -(-len(self.ids) // config.batch_size)

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        order = np.random.default_rng((self.config.seed, epoch)).permutation(len(self.ids))
        for start in range(0, len(order), self.config.batch_size):
            yield order[start : start + self.config.batch_size]

    def size(self, batch: np.ndarray) -> int:
        return len(batch)

    def loss(self, model: PreTrainedModel, batch: np.ndarray, step: int) -> torch.Tensor:
        import torch

        logits = _logits(self.m, model, [self.ids[i] for i in batch])
        targets = torch.from_numpy(self.targets[batch]).to(logits.device)
        return torch.nn.functional.cross_entropy(logits.float(), targets)

    def measure(self, model: PreTrainedModel) -> Epoch:
        logs = _log_probabilities(self.m, model, self.test_texts, self.config.max_tokens, 4096)
        size, found = len(self.labels), logs.argmax(1)
        confusion = np.zeros((size, size), dtype=int)
        np.add.at(confusion, (self.test_targets, found), 1)
        return Epoch(
            number=0,
            train_loss=None,
            held_out_loss=float(-logs[np.arange(len(logs)), self.test_targets].mean()),
            accuracy=float((found == self.test_targets).mean()),
            macro_f1=macro_f1(confusion),
            confusion=confusion,
        )


def _labels(train: pd.DataFrame, test: pd.DataFrame) -> tuple[str, ...]:
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


def _with_new_head(
    m: LoadedModel, labels: tuple[str, ...], config: FinetuneConfig
) -> PreTrainedModel:
    """The encoder of a model, copied, under an untrained head for these labels."""
    import torch
    from transformers import AutoModelForSequenceClassification

    settings = copy.deepcopy(m.model.config)
    settings.id2label = dict(enumerate(labels))
    settings.label2id = {label: i for i, label in enumerate(labels)}
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        model = AutoModelForSequenceClassification.from_config(settings)
    absent, extra = model.base_model.load_state_dict(m.model.base_model.state_dict(), strict=False)
    logger.info("the head starts untrained: %s; not used: %s", absent, extra)
    if config.frozen:
        trained = set(absent)
        for name, parameter in model.base_model.named_parameters():
            parameter.requires_grad_(name in trained)
    return model.to(m.info.device)


def _encode(m: LoadedModel, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Ids of each text with [CLS] and [SEP], cut in its own tokens to `max_tokens` at most."""
    frame = m.backend.encode("").ids
    room = min(max_tokens, m.info.max_tokens) - len(frame)
    bare = m.backend.encode_batch([str(text) for text in texts], add_special_tokens=False)
    half = len(frame) // 2
    return [[*frame[:half], *encoding.ids[:room], *frame[half:]] for encoding in bare]


def _logits(m: LoadedModel, model: PreTrainedModel, rows: Sequence[list[int]]) -> torch.Tensor:
    import torch

    longest = max(map(len, rows))
    ids = np.full((len(rows), longest), m.pad_token_id)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    device = model.device
    batch: dict[str, Any] = {
        "input_ids": torch.from_numpy(ids).to(device),
        "attention_mask": torch.from_numpy(mask).to(device),
    }
    return model(**batch).logits


def _log_probabilities(
    m: LoadedModel,
    model: PreTrainedModel,
    texts: Sequence[str],
    max_tokens: int,
    batch_tokens: int,
) -> np.ndarray:
    """(texts, labels), in batches alike in length, given back in the order of the texts."""
    import torch

    ids = _encode(m, texts, max_tokens)
    lengths = np.array([len(row) for row in ids])
    out = np.zeros((len(ids), model.config.num_labels))
    with torch.inference_mode():
        for batch in training.by_length(lengths, batch_tokens=batch_tokens, seed=0, pool=10**6):
            logits = _logits(m, model, [ids[i] for i in batch])
            out[batch] = logits.float().log_softmax(-1).cpu().numpy()
    return out
