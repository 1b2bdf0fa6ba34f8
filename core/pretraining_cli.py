"""The command line of `pretraining`: corpus in; weights, recorded run and evaluation out."""

from __future__ import annotations

import argparse
import gzip
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from core import training
from core.errors import ClozeError, SettingError
from core.models import DEFAULT, LoadedModel, load_model, wrap
from core.pretraining import (
    Chunks,
    PretrainConfig,
    as_record,
    chunk,
    evaluate,
    export,
    from_encoder,
    pretrain,
)

logger = logging.getLogger("core.pretraining")

HELD_OUT_EVERY = 50  # every 50th paragraph of each file is never trained on


def main(argv: Sequence[str] | None = None) -> None:
    parser = _parser()
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    try:
        run(arguments)
    except ClozeError as error:
        parser.exit(2, f"{error}\n")


def run(arguments: argparse.Namespace) -> None:
    sources = {file_stem(path): read_paragraphs(path) for path in corpus_files(arguments.corpus)}
    repeat = dict(_repeat(item) for item in arguments.repeat)
    train_texts: list[str] = []
    held: dict[str, list[str]] = {}
    for name, texts in sources.items():
        kept = [text for i, text in enumerate(texts, 1) if i % HELD_OUT_EVERY]
        held[name] = texts[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
        train_texts += kept * repeat.get(name, 1)
    m = _start(arguments.start, train_texts)
    config = PretrainConfig(
        optimiser=training.TrainConfig(
            steps=arguments.steps,
            learning_rate=arguments.learning_rate,
            head_learning_rate=arguments.head_learning_rate,
            warmup=arguments.warmup,
            hold=arguments.hold,
            measure_every=arguments.measure_every,
            seed=arguments.seed,
        ),
        rate=arguments.rate,
        max_tokens=arguments.max_tokens,
        batch_tokens=arguments.batch_tokens,
        open_ends=arguments.open_ends,
    )
    held_chunks = {name: chunk(m, texts, 128) for name, texts in held.items() if texts}
    sample = chunk(
        m, [t for texts in held.values() for t in texts[:: max(1, len(texts) // 30)]], 128
    )
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    (output / "config.json").write_text(json.dumps(asdict(config), indent=1))
    train_chunks = chunk(m, train_texts, config.max_tokens)
    logger.info("%d chunks, %d tokens", len(train_chunks), train_chunks.lengths.sum())
    _consume(m, train_chunks, sample, config, output, held_chunks)


def _consume(
    m: LoadedModel,
    train_chunks: Chunks,
    sample: Chunks,
    config: PretrainConfig,
    output: Path,
    held: dict[str, Chunks],
) -> None:
    """Log and record the events of a run; at its end export and evaluate."""
    record = output / "recorded_run.jsonl"
    events = pretrain(m, train_chunks, config, held_out=sample, checkpoint=output / "checkpoint")
    for event in events:
        match event:
            case training.StepDone() if event.step % 25 == 0:
                logger.info(
                    "step %d of %d: loss %.3f, learning rate %.1e, %.0f tokens/s",
                    event.step, event.steps, event.loss, event.learning_rate,
                    event.samples_per_second,
                )  # fmt: skip
            case training.Measured():
                logger.info("held out after step %d: %s", event.step, event.result.held_out)
                with record.open("a") as lines:
                    lines.write(json.dumps(as_record(event)) + "\n")
            case training.Done():
                export(m, event.model, output / "model")
                report = evaluation_report(wrap(event.model, m.tokenizer, name="trained"), held)
                (output / "evaluation.json").write_text(json.dumps(report, indent=1))
                logger.info("evaluation: %s", json.dumps(report))


def evaluation_report(m: LoadedModel, held: dict[str, Chunks]) -> dict[str, dict[str, float]]:
    """Loss and accuracy by source and, weighted by targets, over all of them."""
    report = {name: asdict(evaluate(m, chunks)) for name, chunks in held.items()}
    targets = np.array([row["targets"] for row in report.values()])
    means = {
        name: float(np.average([row[name] for row in report.values()], weights=targets))
        for name in ("loss", "accuracy")
    }
    return {**report, "all": {"targets": int(targets.sum()), **means}}


def corpus_files(paths: Sequence[str]) -> list[Path]:
    """Text files named directly or found in a folder: .txt or .txt.gz, one paragraph a line."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted([*path.glob("*.txt"), *path.glob("*.txt.gz")]) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise SettingError(f"No text found in {', '.join(paths)}: give .txt or .txt.gz files.")
    return files


def read_paragraphs(path: Path) -> list[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in lines if line.strip()]


def file_stem(path: Path) -> str:
    """
    >>> file_stem(Path("corpus/speeches.txt.gz"))
    'speeches'
    """
    return path.name.split(".")[0]


def _start(name: str, texts: Sequence[str]) -> LoadedModel:
    """The masked LM to go on from; a folder of a bare encoder gets a fresh head."""
    folder = Path(name)
    if name != DEFAULT and (folder / "config.json").is_file():
        architectures = json.loads((folder / "config.json").read_text()).get("architectures") or []
        if not any("MaskedLM" in architecture for architecture in architectures):
            return from_encoder(folder, texts)
        return load_model(folder)
    return load_model(name)


def _repeat(item: str) -> tuple[str, int]:
    name, _, times = item.partition("=")
    if not times.isdigit():
        raise SettingError(f"--repeat takes NAME=TIMES, not {item}.")
    return name, int(times)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m core.pretraining",
        description="Train a masked language model on text files, one paragraph a line. "
        "Stopped, the same command goes on from the last measurement.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--corpus", nargs="+", required=True, help="folders or files, .txt or .txt.gz")
    add("--start", default=DEFAULT, help="masked LM or bare encoder: folder, or hub name")
    add("--output", required=True, help="folder for checkpoint, recorded run and final model")
    add("--steps", type=int, default=2000)
    add("--learning-rate", type=float, default=3e-4, help="peak, for the encoder")
    add("--head-learning-rate", type=float, default=1e-3, help="peak, for the masked-LM head")
    add("--warmup", type=float, default=0.03, help="share of the steps")
    add("--hold", type=float, default=0.0, help="share of the steps at the peak before the decay")
    add("--rate", type=float, default=0.15, help="share of the tokens to predict")
    add("--max-tokens", type=int, default=128)
    add("--batch-tokens", type=int, default=4096)
    add("--open-ends", type=float, default=0.0, help="share of texts read without their full stop")
    add("--measure-every", type=int, default=250)
    add("--repeat", nargs="*", default=[], metavar="NAME=TIMES", help="read a file more often")
    add("--seed", type=int, default=0)
    return parser
