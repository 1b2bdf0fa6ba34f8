import json

import pytest

from core import training
from core.pretraining import as_record, pretrain
from core.runs import LiveRun, recorded_run
from tests.core.test_training import TEXTS, config


def test_the_recorded_run_of_the_embedded_model():
    run = recorded_run()
    assert run.steps[0] == 0
    assert run.steps == sorted(set(run.steps))
    history = run.history
    assert history["held_out_loss"].iloc[-1] < history["held_out_loss"].iloc[0] - 2
    assert history["train_loss"].isna().tolist() == [True] + [False] * (len(history) - 1)
    # hiding a token makes it harder to name than leaving it
    assert (history["p_keep"] > history["p_mask"]).iloc[1:].all()
    probes = run.probes
    assert probes.groupby(["step", "sentence"]).size().eq(5).all()
    assert probes["sentence"].nunique() == 16
    sums = probes.groupby(["step", "sentence"])["probability"].sum()
    assert sums.between(0, 1 + 1e-6).all()


def test_a_run_is_read_as_it_was_measured(tiny, tmp_path):
    events = [e for e in pretrain(tiny, TEXTS, config(steps=4)) if isinstance(e, training.Measured)]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(json.dumps(as_record(event)) for event in events))
    run = recorded_run(path)
    assert run.steps == [0, 2, 4]
    for row, event in zip(run.history.itertuples(), events, strict=True):
        assert row.held_out_loss == event.result.held_out.loss
        assert row.accuracy == event.result.held_out.accuracy
        assert row.p_mask == event.result.p_true["mask"]
    first = run.probes[run.probes["step"] == 4].iloc[0]
    assert first["token"] == events[-1].result.probes[0].tokens[0]
    assert run.history["train_loss"].iloc[2] == pytest.approx(events[2].train_loss)


def test_a_live_run_waits_where_it_is_left(tiny):
    run = LiveRun(pretrain(tiny, TEXTS, config(steps=6)), 6)
    for state in run.resume():
        if state.step == 3:
            break
    assert run.result is None
    assert [step for step, _ in run.losses] == [1, 2, 3]
    for state in run.resume():
        assert state.seconds_left >= 0
    assert [step for step, _ in run.losses] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in run.measured] == [0, 2, 4, 6]
    assert run.result.model is not tiny.model
    whole = [e for e in pretrain(tiny, TEXTS, config(steps=6)) if isinstance(e, training.StepDone)]
    assert [loss for _, loss in run.losses] == [e.loss for e in whole]
