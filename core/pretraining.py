"""Masked-LM pre-training on top of `training`, and its command line.

    python -m core.pretraining --corpus FOLDER --start ENCODER --output FOLDER

The command trains until its steps are done; stopped at any moment, the same command goes on from the
last measurement. What the loop does is in `training`, what is masked is in `masking`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from core import masking, training
from core.datasets import DEFAULT_SENTENCE
from core.errors import SettingError
from core.exports import zipped
from core.models import LoadedModel, head_of, wrap
from core.text import word_numbers

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# Watched through a run: the default sentence with each word hidden, and nine others with one mask.
PROBES = (
    "She locked the [MASK] and put the key in her pocket.",
    "The capital of France is [MASK].",
    "He poured himself a cup of [MASK] before work.",
    "Two plus two is [MASK].",
    "The river burst its [MASK] after a week of rain.",
    "They deposited the cheque at the [MASK] in town.",
    "Mozart wrote the [MASK] in a few weeks.",
    "The battery died, so I want my [MASK] back.",
    "It was so cold that the lake had [MASK] over.",
)


@dataclass(frozen=True)
class PretrainConfig:
    """What is masked, and how the text is cut and batched."""

    optimiser: training.TrainConfig = field(default_factory=lambda: training.TrainConfig(steps=200))
    epochs: int | None = None  # passes over the text; they set the optimiser's steps, and measure
    rate: float = 0.15  # the share of tokens to predict, as in BERT
    split: masking.Split = field(default_factory=masking.Split)
    unit: masking.Unit = masking.Unit.TOKEN
    max_tokens: int = 128  # [CLS] and [SEP] included; most paragraphs are shorter
    batch_tokens: int = 4096  # padding included
    open_ends: float = 0.0  # share of chunks read without their final . ! or ?, as people type
    dropout: float = 0.0  # a short run sees nothing twice, so there is little to overfit

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise SettingError(f"The mask probability must be above 0 and at most 1: {self.rate}.")
        if self.epochs is not None and self.epochs < 1:
            raise SettingError(f"Training needs at least 1 epoch, not {self.epochs}.")
        if not 8 <= self.max_tokens <= 8192:
            raise SettingError(f"A chunk must hold 8 to 8192 tokens, not {self.max_tokens}.")


@dataclass(frozen=True)
class Chunks:
    """Tokenised text, cut to what the model reads. Chunk i is `ids[starts[i]:starts[i] + lengths[i]]`."""

    ids: np.ndarray  # (tokens,) without special tokens
    words: np.ndarray  # (tokens,) number of the word within its paragraph; 0 where not asked for
    starts: np.ndarray  # (chunks,)
    lengths: np.ndarray  # (chunks,)

    def __len__(self) -> int:
        return len(self.starts)

    def first(self, count: int) -> Chunks:
        """The first `count` chunks."""
        return Chunks(self.ids, self.words, self.starts[:count], self.lengths[:count])


@dataclass(frozen=True)
class Evaluation:
    """Means over the masked positions of a text; losses in nats."""

    targets: int
    loss: float
    accuracy: float  # share of positions whose top-1 is the true token
    loss_error: float  # standard errors of the two means over the targets
    accuracy_error: float

    def __str__(self) -> str:
        return f"loss {self.loss:.3f}, top-1 accuracy {self.accuracy:.3f}, {self.targets} targets"


@dataclass(frozen=True)
class ProbeResult:
    """The five most probable tokens at the mask of a fixed sentence."""

    sentence: str
    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Measurement:
    """What is recorded of a run at one step."""

    held_out: Evaluation
    p_true: dict[str, float]  # mean probability of the true token under mask, random, keep
    probes: tuple[ProbeResult, ...]


def pretrain(
    m: LoadedModel,
    texts: Sequence[str] | Chunks,
    config: PretrainConfig = PretrainConfig(),
    *,
    held_out: Sequence[str] | Chunks = (),
    probes: Sequence[str] | None = None,
    checkpoint: Path | None = None,
    stop: Callable[[], bool] = training.never,
) -> Iterator[training.Event]:
    """Train a copy of a masked LM on texts; the last event, `Done`, holds the copy.

    Without `held_out`, every 50th chunk is kept aside. Where `stop` says so, the run ends after its
    step with what it has; closing the generator ends it without.
    """
    by_word = config.unit is not masking.Unit.TOKEN
    cut = partial(chunk, m, max_tokens=config.max_tokens, words=by_word)
    chunks = texts if isinstance(texts, Chunks) else cut(texts)
    if held_out:
        kept = held_out if isinstance(held_out, Chunks) else cut(held_out)
    else:
        kept, chunks = hold_out(chunks)
    if config.epochs is not None:
        config = _in_steps(config, chunks)
    model = copy.deepcopy(m.model)
    model.requires_grad_(True)
    _set_dropout(model, config.dropout)
    watched = default_probes(m) if probes is None else probes
    task = MaskedLM(m, chunks, kept, watched, config)
    return training.train(model, task, config.optimiser, checkpoint=checkpoint, stop=stop)


def _in_steps(config: PretrainConfig, chunks: Chunks) -> PretrainConfig:
    """The same configuration with its epochs as optimiser steps, measured after each epoch."""
    each = steps_in(chunks, config)
    optimiser = replace(config.optimiser, steps=each * (config.epochs or 1), measure_every=each)
    return replace(config, epochs=None, optimiser=optimiser)


class MaskedLM:
    """The masked-LM objective as a `training.Task`. Every pass draws its masks anew."""

    def __init__(
        self,
        m: LoadedModel,
        chunks: Chunks,
        held_out: Chunks,
        probes: Sequence[str],
        config: PretrainConfig,
    ) -> None:
        self.m, self.chunks, self.held_out = m, chunks, held_out
        self.probes, self.config = probes, config

    def batches(self, epoch: int) -> Iterator[np.ndarray]:
        seed = (self.config.optimiser.seed, epoch)
        lengths = self.chunks.lengths + 2
        yield from training.by_length(lengths, batch_tokens=self.config.batch_tokens, seed=seed)

    def size(self, batch: np.ndarray) -> int:
        return int(self.chunks.lengths[batch].sum())

    def loss(self, model: PreTrainedModel, batch: np.ndarray, step: int) -> torch.Tensor | None:
        import torch

        rng = np.random.default_rng((self.config.optimiser.seed, step))
        ids, words = padded(self.m, self._opened(batch, rng), batch)
        masked = masking.mask_tokens(
            ids,
            self.m.vocabulary,
            rate=self.config.rate,
            split=self.config.split,
            unit=self.config.unit,
            words=words,
            seed=rng,
        )
        if not masked.selected.any():
            return None
        logits, targets = target_logits(self.m, model, masked)
        return torch.nn.functional.cross_entropy(logits.float(), targets)

    def _opened(self, batch: np.ndarray, rng: np.random.Generator) -> Chunks:
        """The chunks, some of a batch without their final full stop."""
        if self.config.open_ends == 0:
            return self.chunks
        lengths = self.chunks.lengths.copy()
        last = self.chunks.ids[self.chunks.starts[batch] + lengths[batch] - 1]
        known = [self.m.backend.token_to_id(stop) for stop in ".!?"]
        stops = np.isin(last, [token for token in known if token is not None])
        drawn = rng.random(len(batch)) < self.config.open_ends
        lengths[batch] -= stops & drawn & (lengths[batch] > 1)
        return replace(self.chunks, lengths=lengths)

    def measure(self, model: PreTrainedModel) -> Measurement:
        return Measurement(
            held_out=evaluate(self.m, self.held_out, model=model),
            p_true={
                action.name.lower(): _p_true(self.m, model, self.held_out, action)
                for action in (masking.Action.MASK, masking.Action.RANDOM, masking.Action.KEEP)
            },
            probes=tuple(_probe(self.m, model, probe) for probe in self.probes),
        )


def target_logits(
    m: LoadedModel, model: PreTrainedModel, masked: masking.Masked
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (targets, vocabulary) and true ids (targets,) at the selected positions only."""
    import torch

    device = model.device
    inputs = torch.from_numpy(masked.inputs).to(device)
    selected = torch.from_numpy(masked.selected).to(device)
    attention = (inputs != m.pad_token_id).long()
    hidden = model.base_model(input_ids=inputs, attention_mask=attention)[0]
    targets = torch.from_numpy(masked.labels[masked.selected]).to(device)
    return head_of(model)(hidden[selected]), targets


def evaluate(
    m: LoadedModel,
    chunks: Chunks,
    *,
    model: PreTrainedModel | None = None,
    rate: float = 0.15,
    split: masking.Split = masking.Split(),  # noqa: B008 (frozen)
    seed: int = 0,
) -> Evaluation:
    """Masked-LM loss and accuracy on held-out text, under one fixed draw of masks.

    Each target weighs the same, whichever batch it falls in.
    """
    import torch

    losses, right = [], []
    for logits, truth in _passes(m, model or m.model, chunks, rate, split, seed):
        losses.append(torch.nn.functional.cross_entropy(logits, truth, reduction="none").cpu())
        right.append((logits.argmax(-1) == truth).double().cpu())
    if not losses:
        raise SettingError("The held-out text has no token to mask: give more of it.")
    loss, hits = torch.cat(losses).double(), torch.cat(right)
    errors = [float(x.std(correction=0) / len(x) ** 0.5) for x in (loss, hits)]
    return Evaluation(len(loss), float(loss.mean()), float(hits.mean()), *errors)


def loss_by_rate(
    m: LoadedModel, texts: Sequence[str], rates: Sequence[float], *, seed: int = 0
) -> Iterator[tuple[float, Evaluation]]:
    """Loss and accuracy at masked tokens as more of the text is hidden (Wettig et al. 2022).

    Every selected token becomes the mask, so that the rate is all that changes.
    """
    chunks = chunk(m, texts, m.info.max_tokens)
    for rate in rates:
        yield rate, evaluate(m, chunks, rate=rate, split=masking.Split(1, 0, 0), seed=seed)


def _passes(
    m: LoadedModel,
    model: PreTrainedModel,
    chunks: Chunks,
    rate: float,
    split: masking.Split,
    seed: int,
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    import torch

    batches = training.by_length(chunks.lengths + 2, batch_tokens=4096, seed=0, pool=10**6)
    for number, batch in enumerate(batches):
        ids, _ = padded(m, chunks, batch)
        rng = np.random.default_rng((seed, number))
        masked = masking.mask_tokens(ids, m.vocabulary, rate=rate, split=split, seed=rng)
        if masked.selected.any():
            with torch.inference_mode():
                logits, truth = target_logits(m, model, masked)
            yield logits.float(), truth


def _p_true(
    m: LoadedModel, model: PreTrainedModel, chunks: Chunks, action: masking.Action
) -> float:
    """Mean probability of the true token when every selected position gets the same action."""
    split = masking.Split(*(float(action == a) for a in (1, 2, 3)))
    found = [
        logits.softmax(-1).gather(1, truth[:, None])
        for logits, truth in _passes(m, model, chunks, 0.15, split, seed=0)
    ]
    return float(np.concatenate([p.cpu().numpy() for p in found]).mean())


def default_probes(m: LoadedModel) -> list[str]:
    """The ten probe sentences, the default one with each of its words hidden in turn."""
    words = DEFAULT_SENTENCE.split()
    hidden = [" ".join([*words[:i], "[MASK]", *words[i + 1 :]]) for i in range(len(words))]
    return [text.replace("[MASK]", m.mask_token) for text in (*hidden, *PROBES)]


def _probe(m: LoadedModel, model: PreTrainedModel, sentence: str) -> ProbeResult:
    import torch

    ids = np.array([m.backend.encode(sentence).ids])
    selected = ids == m.mask_token_id
    masked = masking.Masked(ids, np.where(selected, ids, -100), selected, selected)
    logits, _ = target_logits(m, model, masked)
    top = torch.topk(logits[0].float().softmax(-1), 5)
    tokens = tuple(m.token(i) for i in top.indices.tolist())
    return ProbeResult(sentence, tokens, tuple(round(p, 5) for p in top.values.tolist()))


def chunk(m: LoadedModel, texts: Sequence[str], max_tokens: int, *, words: bool = False) -> Chunks:
    """Tokenise paragraphs and cut each into runs of at most `max_tokens` with [CLS] and [SEP].

    Word numbers, needed to mask by word or span, take longer than the rest and come on request.
    """
    room = min(max_tokens, m.info.max_tokens) - 2
    ids: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    spans: list[tuple[int, int]] = []
    total = 0
    for begin in range(0, len(texts), 1024):
        batch = [text for text in texts[begin : begin + 1024] if text.strip()]
        encodings = m.backend.encode_batch(batch, add_special_tokens=False)
        for text, encoding in zip(batch, encodings, strict=True):
            count = len(encoding.ids)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            found = word_numbers(m, text, encoding, range(count)) if words else [0] * count
            numbers.append(np.array(found, dtype=np.int32))
            parts = -(-count // room)  # equal parts, rather than full ones and a crumb
            edges = [count * part // parts for part in range(parts + 1)] if parts else []
            spans += [(total + a, b - a) for a, b in pairwise(edges)]
            total += count
    if not spans:
        raise SettingError("The text is empty: there is nothing to train on.")
    table = np.array(spans)
    return Chunks(np.concatenate(ids), np.concatenate(numbers), table[:, 0], table[:, 1])


def padded(m: LoadedModel, chunks: Chunks, batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids and word numbers of the chosen chunks, both (chunks, tokens) with [CLS], [SEP], padding."""
    lengths = chunks.lengths[batch]
    template = m.backend.encode("").ids  # [CLS] and [SEP], whatever they are called
    ids = np.full((len(batch), int(lengths.max()) + 2), m.pad_token_id, dtype=np.int64)
    words = np.full_like(ids, -1)
    ids[:, 0] = template[0]
    for row, (start, length) in enumerate(zip(chunks.starts[batch], lengths, strict=True)):
        ids[row, 1 : length + 1] = chunks.ids[start : start + length]
        words[row, 1 : length + 1] = chunks.words[start : start + length]
        ids[row, length + 1] = template[-1]
    return ids, words


def hold_out(chunks: Chunks, every: int = 50) -> tuple[Chunks, Chunks]:
    """Every 50th chunk, or the last one of a short text, and the rest."""
    number = np.arange(len(chunks))
    if len(chunks) < 2:
        raise SettingError("The text is too short: it needs two paragraphs, one to be held out.")
    out = number % every == every - 1 if len(chunks) >= every else number == len(chunks) - 1
    held, kept = (
        Chunks(chunks.ids, chunks.words, chunks.starts[part], chunks.lengths[part])
        for part in (out, ~out)
    )
    return held, kept


def _set_dropout(model: torch.nn.Module, p: float) -> None:
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = p


def with_fresh_head(folder: Path, counts: np.ndarray) -> PreTrainedModel:
    """A BERT masked LM from a bare encoder: the head starts as near to useful as it can.

    The transform is the identity and the output bias the log frequency of each token in the
    training text, so that the first predictions are the unigram distribution and not noise.
    """
    import torch
    from transformers import BertForMaskedLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # it would report the head that we are about to make
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True)
    with torch.no_grad():
        predictions = model.cls.predictions
        torch.nn.init.eye_(predictions.transform.dense.weight)
        torch.nn.init.zeros_(predictions.transform.dense.bias)
        share = (counts + 0.1) / (counts + 0.1).sum()
        predictions.bias.copy_(torch.from_numpy(np.log(share)))
    return model


def from_encoder(folder: Path, texts: Sequence[str]) -> LoadedModel:
    """A masked LM to be trained, from the folder of a BERT encoder without a head."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # sentence encoders often ship a limit that the model does not have
    backend.no_padding()
    for setting in ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of"):
        tokenizer.init_kwargs.pop(setting, None)  # else they would be saved along
    counts = np.zeros(len(tokenizer))
    for encoding in backend.encode_batch(list(texts[::10]), add_special_tokens=False):
        np.add.at(counts, encoding.ids, 1)
    return wrap(with_fresh_head(folder, counts), tokenizer, name=folder.name)


def from_scratch(m: LoadedModel, *, layers: int, hidden: int, seed: int = 0) -> LoadedModel:
    """An untrained small BERT that reads with the tokenizer of `m`. Its heads are 32 wide."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    if not 1 <= layers <= 12 or hidden % 32 or not 32 <= hidden <= 768:
        raise SettingError(
            f"A BERT from scratch has 1 to 12 layers and a hidden size of 32 to 768 in steps of 32, "
            f"not {layers} and {hidden}."
        )
    config = BertConfig(
        vocab_size=m.info.vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,
        intermediate_size=4 * hidden,
        max_position_embeddings=min(512, m.info.max_tokens),
        pad_token_id=m.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForMaskedLM(config)
    return wrap(model.to(m.info.device), m.tokenizer, name=f"BERT {layers} x {hidden} from scratch")


def steps_in(chunks: Chunks, config: PretrainConfig) -> int:
    """Optimiser steps in one pass over the text."""
    lengths, seed = chunks.lengths + 2, (config.optimiser.seed, 1)
    return len(training.by_length(lengths, batch_tokens=config.batch_tokens, seed=seed))


def export(m: LoadedModel, model: PreTrainedModel, folder: Path) -> None:
    """Float16 safetensors with config and tokenizer, as transformers loads them."""
    import torch

    copy.deepcopy(model).to(torch.float16).save_pretrained(folder)
    m.tokenizer.save_pretrained(folder)


def as_zip(m: LoadedModel, model: PreTrainedModel) -> bytes:
    """`export` as one file to take home."""
    return zipped(partial(export, m, model))


def as_record(event: training.Measured) -> dict[str, object]:
    """A measurement as plain data, for the recorded run."""
    return {
        "event": "measured",
        "step": event.step,
        "train_loss": event.train_loss,
        **asdict(event.result),
    }


if __name__ == "__main__":
    from core.pretraining_cli import main

    main()
