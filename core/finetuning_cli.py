"""The command line of `finetuning`: the built-in reviews in; a run folder with its classifier out."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from core import finetuning
from core.datasets import labelled, read_table, reviews, split
from core.errors import ClozeError
from core.finetuning import FinetuneConfig
from core.models import DEFAULT, load_model
from core.runs import run_here

logger = logging.getLogger("core.finetuning")

EXAMPLES = (
    "It is not perfect, but I would see it again.",
    "I expected a disaster, and it was worse.",
    "Warm, funny and over far too soon.",
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        run(arguments)
    except ClozeError as error:
        parser.exit(2, f"{error}\n")


def run(arguments: argparse.Namespace) -> None:
    rows = reviews()
    if arguments.data:
        table = read_table(arguments.data.read_bytes(), arguments.data.name)
        rows = labelled(table.frame, "text", "label").frame
    train, test = (part.frame for part in split(rows, seed=arguments.seed))
    config = FinetuneConfig(
        epochs=arguments.epochs,
        batch_size=arguments.batch_size,
        learning_rate=arguments.learning_rate,
        frozen=arguments.frozen,
        seed=arguments.seed,
    )
    job = finetuning.job(load_model(arguments.start), train, test, config, examples=EXAMPLES)
    for record in run_here(job, arguments.output):
        if record["event"] == "epoch":
            logger.info(
                "epoch %d: held-out loss %.3f, accuracy %.3f",
                record["number"], record["held_out_loss"], record["accuracy"],
            )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    default = FinetuneConfig()
    parser = argparse.ArgumentParser(
        prog="python -m core.finetuning",
        description="Fine-tune a classifier on the built-in reviews, or on a table with the columns "
        "text and label.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--output", type=Path, required=True, help="folder for the history and the classifier")
    add("--data", type=Path, help="CSV, TSV or JSONL; without it the built-in reviews")
    add("--start", default=DEFAULT, help="masked LM to start from: folder, or hub name")
    add("--epochs", type=int, default=default.epochs)
    add("--batch-size", type=int, default=default.batch_size)
    add("--learning-rate", type=float, default=default.learning_rate)
    add("--frozen", action="store_true", help="train the head only")
    add("--seed", type=int, default=default.seed)
    return parser
