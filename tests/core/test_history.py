import json

import pytest

from core import training
from core.datasets import reviews, split
from core.finetuning import epochs_in
from core.history import (
    losses,
    pretraining_history,
    recorded_finetuning,
    recorded_pretraining,
)
from core.pretraining import as_record, pretrain
from core.runs import read_records
from tests.core.test_training import TEXTS, config


def test_the_recorded_run_of_the_embedded_model():
    run = recorded_pretraining()
    assert run.steps[0] == 0
    assert run.steps == sorted(set(run.steps))
    figures = run.figures
    assert figures["held_out_loss"].iloc[-1] < figures["held_out_loss"].iloc[0] - 2
    assert figures["train_loss"].isna().tolist() == [True] + [False] * (len(figures) - 1)
    # hiding a token makes it harder to name than leaving it
    assert (figures["p_keep"] > figures["p_mask"]).iloc[1:].all()
    probes = run.probes
    assert probes.groupby(["step", "sentence"]).size().eq(5).all()
    assert probes["sentence"].nunique() == 16
    sums = probes.groupby(["step", "sentence"])["probability"].sum()
    assert sums.between(0, 1 + 1e-6).all()


def test_a_run_is_read_as_it_was_measured(tiny, tmp_path):
    events = [e for e in pretrain(tiny, TEXTS, config(steps=4)) if isinstance(e, training.Measured)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(as_record(event)) + "\n" for event in events))
    run = pretraining_history(read_records(path))
    assert run.steps == [0, 2, 4]
    for row, event in zip(run.figures.itertuples(), events, strict=True):
        assert row.held_out_loss == event.result.held_out.loss
        assert row.accuracy == event.result.held_out.accuracy
        assert row.p_mask == event.result.p_true["mask"]
    first = run.probes[run.probes["step"] == 4].iloc[0]
    assert first["token"] == events[-1].result.probes[0].tokens[0]
    assert run.figures["train_loss"].iloc[2] == pytest.approx(events[2].train_loss)


def test_losses_by_step():
    events = [training.StepDone(1, 2, 0.5, 1e-3, 9.0), training.StepDone(2, 2, 0.25, 0.0, 9.0)]
    frame = losses([training.as_record(event) for event in events])
    assert frame.to_dict("list") == {"step": [1, 2], "loss": [0.5, 0.25]}


def test_the_recorded_fine_tuning_is_of_the_embedded_model_and_the_built_in_reviews(embedded):
    run = recorded_finetuning()
    assert run.about["weights"] == embedded.weights_hash
    train, test = (part.frame for part in split(reviews()))
    assert run.about["test"]["text"] == test["text"].tolist()
    assert run.about["train_rows"] == len(train)
    epochs = epochs_in(run.records)
    assert [epoch.number for epoch in epochs] == [0, 1, 2, 3]
    assert epochs[-1].accuracy >= 0.82
