"""Masked-LM training on the Python reference against transformers' Trainer.

Same paragraphs, start, tokens a batch, precision and learning rate, one pass; each side in a process
of its own. Trainer gets DataCollatorForLanguageModeling and pads each batch to its longest paragraph.
Checked first: the loss on held-out paragraphs, mean over the seeds, is within 3 % of Trainer's, or
lower.
"""

import statistics
import sys
import tempfile
import time

from benchmarks.sides import compare, tell
from core.chunks import Chunks, chunk, hold_out
from core.datasets import python_reference
from core.evaluation import evaluate
from core.models import load_model, wrap
from core.pretraining import PretrainConfig, pretrain
from core.training import Done, StepDone, TrainConfig, has_bfloat16, make_optimizer

ROWS, BATCH = 640, 16  # paragraphs, and how many of them Trainer puts in a batch
RATE = 1e-4


def data(m):
    held, used = hold_out(chunk(m, python_reference(), 128), every=10)
    return used.first(ROWS), held.first(100)


def ours(seed):
    m = load_model()
    used, held = data(m)
    steps = -(-len(used) // BATCH)
    optimiser = TrainConfig(
        steps=steps, learning_rate=RATE, warmup=0.1, measure_every=10**6, seed=seed
    )
    per_batch = int((used.lengths + 2).mean() * BATCH)
    config = PretrainConfig(optimiser=optimiser, batch_tokens=per_batch, dropout=0.1)
    tokens, seconds, began = 0.0, 0.0, time.perf_counter()
    for event in pretrain(m, used, config, held_out=held.first(1), probes=[]):
        now = time.perf_counter()
        if isinstance(event, StepDone):
            seconds += now - began
            tokens += event.samples_per_second * (now - began)
        if isinstance(event, Done):
            model = event.model
        began = time.perf_counter()
    tell(speed=tokens / seconds, loss=evaluate(m, held, model=model).loss)


def theirs(seed):
    from transformers import (
        DataCollatorForLanguageModeling,
        Trainer,
        TrainingArguments,
        get_linear_schedule_with_warmup,
    )

    m = load_model()
    used, held = data(m)
    m.model.requires_grad_(True)
    rows = [{"input_ids": with_ends(m, used, i)} for i in range(len(used))]
    steps = -(-len(rows) // BATCH)
    optimizer = make_optimizer(m.model, TrainConfig(steps=steps, learning_rate=RATE))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=m.model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=BATCH,
                num_train_epochs=1,
                seed=seed,
                bf16=has_bfloat16("cpu"),
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=rows,
            data_collator=DataCollatorForLanguageModeling(m.tokenizer),
            optimizers=(
                optimizer,
                get_linear_schedule_with_warmup(optimizer, round(0.1 * steps), steps),
            ),
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    trained = wrap(m.model, m.tokenizer, name="trained")
    tell(speed=float(used.lengths.sum() / seconds), loss=evaluate(trained, held).loss)


def with_ends(m, chunks: Chunks, i):
    first, last = m.backend.encode("").ids
    start, length = chunks.starts[i], chunks.lengths[i]
    return [first, *chunks.ids[start : start + length].tolist(), last]


def main():
    if len(sys.argv) == 3:
        {"ours": ours, "theirs": theirs}[sys.argv[1]](int(sys.argv[2]))
        return
    mine, other, _ = compare("benchmarks.bench_pretraining", range(3), "tokens")
    means = [statistics.mean(side["loss"] for side in both) for both in (mine, other)]
    print(f"held-out loss, mean of 3 seeds: {means[0]:.3f} and {means[1]:.3f}")
    assert means[0] <= 1.03 * means[1], means


if __name__ == "__main__":
    main()
