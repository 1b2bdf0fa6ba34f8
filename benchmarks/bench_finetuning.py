"""Fine-tuning on the built-in reviews against transformers' Trainer.

Same rows, start, batch size, precision, epochs, learning rates and schedule; each side in a process
of its own. Trainer pads each batch to its longest row, as its users do. Checked first: accuracy on
the held-out rows, mean over the seeds, is within 2 points of Trainer's, or better.
"""

import statistics
import sys
import tempfile
import time

import numpy as np

from benchmarks.sides import compare, tell
from core.classifier import classify, encode, untrained
from core.datasets import reviews, split
from core.finetuning import Done, FinetuneConfig, finetune, label_names, steps_per_epoch
from core.models import load_model
from core.training import TrainConfig, has_bfloat16, make_optimizer


def data(seed):
    return (part.frame for part in split(reviews(), seed=seed))


def ours(seed):
    m, (train, test), config = load_model(), data(seed), FinetuneConfig(seed=seed)
    start = time.perf_counter()
    *_, last = finetune(m, train, test.groupby("label").head(1), config)
    seconds = time.perf_counter() - start
    assert isinstance(last, Done)
    finish(last.result, train, test, config, seconds)


def theirs(seed):
    from transformers import (
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
        get_linear_schedule_with_warmup,
    )

    m, (train, test), config = load_model(), data(seed), FinetuneConfig(seed=seed)
    made = untrained(m, label_names(train, test), max_tokens=config.max_tokens, seed=seed)
    rows = [
        {"input_ids": ids, "label": made.labels.index(label)}
        for ids, label in zip(encode(made, train["text"].tolist()), train["label"], strict=True)
    ]
    steps = config.epochs * steps_per_epoch(len(rows), config)
    optimizer = make_optimizer(
        made.model,
        TrainConfig(
            steps=steps,
            learning_rate=config.learning_rate,
            head_learning_rate=config.head_factor * config.learning_rate,
            betas=(0.9, 0.999),
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=made.model,
            args=TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=config.batch_size,
                num_train_epochs=config.epochs,
                seed=seed,
                bf16=has_bfloat16("cpu"),
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            ),
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(m.tokenizer),
            optimizers=(
                optimizer,
                get_linear_schedule_with_warmup(optimizer, round(config.warmup * steps), steps),
            ),
        )
        start = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - start
    made.model.eval()
    finish(made, train, test, config, seconds)


def finish(made, train, test, config, seconds):
    found = classify(made, test["text"].tolist())["label"].to_numpy()
    accuracy = float(np.mean(found == test["label"].to_numpy()))
    tell(speed=len(train) * config.epochs / seconds, accuracy=accuracy)


def main():
    if len(sys.argv) == 3:
        {"ours": ours, "theirs": theirs}[sys.argv[1]](int(sys.argv[2]))
        return
    mine, other, _ = compare("benchmarks.bench_finetuning", range(3), "samples")
    means = [statistics.mean(side["accuracy"] for side in both) for both in (mine, other)]
    print(f"held-out accuracy, mean of 3 seeds: {means[0]:.3f} and {means[1]:.3f}")
    assert means[0] >= means[1] - 0.02, means


if __name__ == "__main__":
    main()
