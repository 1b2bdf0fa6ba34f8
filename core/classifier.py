"""A fine-tuned classifier: make one untrained, label texts with it, save it and load it again.

The head is transformers' own for the family, so that what is saved loads there as it is. Training is
left to `finetuning`.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from core.batching import BATCH_TOKENS, in_batches, padded
from core.errors import ModelError
from core.models import LoadedModel, load_config, load_tokenizer

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

ABOUT = "cloze.json"  # what a saved classifier needs besides what transformers saves


@dataclass(frozen=True)
class Classifier:
    """A fine-tuned model. `labels` are in the order of its outputs."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    max_tokens: int  # longer texts are cut there

    @property
    def backend(self) -> Tokenizer:
        """The tokenizer beneath; only ever read, so safe to share."""
        return self.tokenizer.backend_tokenizer

    def save(self, folder: Path, card: str = "") -> None:
        """A folder that `transformers.pipeline("text-classification", model=folder)` loads."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        (folder / ABOUT).write_text(json.dumps({"max_tokens": self.max_tokens}), encoding="utf-8")
        if card:
            (folder / "README.md").write_text(card, encoding="utf-8")


def load_classifier(folder: Path) -> Classifier:
    """A classifier that was saved here."""
    from transformers import AutoModelForSequenceClassification

    config = load_config(str(folder), folder.name)
    tokenizer = load_tokenizer(str(folder), folder.name)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    model = AutoModelForSequenceClassification.from_pretrained(folder, use_safetensors=True)
    model.eval().requires_grad_(False)
    labels = tuple(config.id2label[i] for i in range(config.num_labels))
    told = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    return Classifier(model, tokenizer, labels, told["max_tokens"])


def untrained(m: LoadedModel, labels: Sequence[str], *, max_tokens: int, seed: int) -> Classifier:
    """The encoder of a model, copied, under a new head that reads the final [CLS] vector."""
    import torch
    from transformers import AutoModelForSequenceClassification

    settings = copy.deepcopy(m.model.config)
    if type(settings) not in AutoModelForSequenceClassification._model_mapping:
        raise ModelError(f"{m.info.name} is of a family that has no classifier in transformers.")
    settings.id2label = dict(enumerate(labels))
    settings.label2id = {label: i for i, label in enumerate(labels)}
    if hasattr(settings, "classifier_pooling"):  # ModernBERT can also read the mean
        settings.classifier_pooling = "cls"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForSequenceClassification.from_config(settings)
    absent, extra = model.base_model.load_state_dict(m.model.base_model.state_dict(), strict=False)
    logger.info("the head starts untrained: %s; not used: %s", absent, extra)
    limit = min(max_tokens, m.info.max_tokens)
    return Classifier(model.to(m.info.device).eval(), m.tokenizer, tuple(labels), limit)


def classify(
    classifier: Classifier, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS
) -> pd.DataFrame:
    """Label and probabilities of texts, in their order.

    Columns: text, label, probability (of that label), then "p: <label>" for each label.
    """
    out = np.zeros((len(texts), len(classifier.labels)))
    for rows, found in classifying(classifier, texts, batch_tokens=batch_tokens):
        out[rows] = np.exp(found)
    return as_frame(classifier, texts, out)


def classifying(
    classifier: Classifier, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Row numbers and log probabilities (rows, labels), batch by batch of texts alike in length."""
    yield from log_probabilities(classifier, encode(classifier, texts), batch_tokens)


def as_frame(
    classifier: Classifier, texts: Sequence[str], probabilities: np.ndarray
) -> pd.DataFrame:
    """The frame that `classify` gives, from probabilities (texts, labels)."""
    import pandas as pd

    best = probabilities.argmax(1)
    frame = pd.DataFrame(
        {
            "text": list(texts),
            "label": [classifier.labels[i] for i in best],
            "probability": probabilities.max(1) if len(texts) else [],
        }
    )
    for i, label in enumerate(classifier.labels):
        frame[f"p: {label}"] = probabilities[:, i]
    return frame


def encode(classifier: Classifier, texts: Sequence[str]) -> list[list[int]]:
    """Ids of each text with [CLS] and [SEP], cut in its own tokens to what is read."""
    frame = classifier.backend.encode("").ids
    room, half = classifier.max_tokens - len(frame), len(frame) // 2
    bare = classifier.backend.encode_batch([str(text) for text in texts], add_special_tokens=False)
    return [[*frame[:half], *encoding.ids[:room], *frame[half:]] for encoding in bare]


def inputs(classifier: Classifier, rows: Sequence[list[int]]) -> dict[str, torch.Tensor]:
    """Ids and attention mask of a batch, both (rows, longest)."""
    import torch

    ids, mask = padded(rows, classifier.tokenizer.pad_token_id or 0)
    device = classifier.model.device
    return {
        "input_ids": torch.from_numpy(ids).to(device),
        "attention_mask": torch.from_numpy(mask).to(device),
    }


def log_probabilities(
    classifier: Classifier, ids: Sequence[list[int]], batch_tokens: int = BATCH_TOKENS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `classifying`, from ids that are encoded already."""
    import torch

    model: Any = classifier.model
    for batch in in_batches([len(row) for row in ids], batch_tokens):
        with torch.inference_mode():
            logits = model(**inputs(classifier, [ids[i] for i in batch])).logits
            found = logits.float().log_softmax(-1).cpu().numpy()
        yield batch, found


def cls_vectors(
    classifier: Classifier, ids: Sequence[list[int]], batch_tokens: int = BATCH_TOKENS
) -> torch.Tensor:
    """The encoder's final [CLS] vectors (rows, hidden), without dropout."""
    import torch

    model: Any = classifier.model
    vectors = torch.zeros(len(ids), model.config.hidden_size, device=model.device)
    model.eval()
    for batch in in_batches([len(row) for row in ids], batch_tokens):
        with torch.no_grad():
            hidden = model.base_model(**inputs(classifier, [ids[i] for i in batch]))[0]
            vectors[torch.from_numpy(batch)] = hidden[:, 0].float()
    return vectors
