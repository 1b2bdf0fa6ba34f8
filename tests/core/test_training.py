import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.errors import SettingError
from core.models import wrap
from core.pretraining import (
    MaskedLM,
    PretrainConfig,
    chunk,
    evaluate,
    hold_out,
    pretrain,
)
from core.training import (
    Diverged,
    Done,
    Measured,
    StepDone,
    StepSkipped,
    TrainConfig,
    as_record,
    by_length,
    has_bfloat16,
    make_optimizer,
    rows_by_length,
    schedule,
)

TEXTS = [
    "the cat sat on the warm mat", "a dog ran in the rain", "moss in weak light", "the bank is known",
    "the kettle is whistling slowly", "two three four five six", "the river ran, the cat sat",
] * 8  # fmt: skip


def config(steps=6, **changes):
    optimiser = TrainConfig(steps=steps, learning_rate=1e-2, measure_every=2)
    return replace(PretrainConfig(optimiser=optimiser, rate=0.3, batch_tokens=128), **changes)


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def run(m, settings, **options):
    return list(pretrain(m, TEXTS, settings, **options))


def test_the_schedule_against_the_one_of_transformers():
    from transformers import get_linear_schedule_with_warmup

    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    oracle = get_linear_schedule_with_warmup(optimizer, 20, 100)
    settings = TrainConfig(steps=100, warmup=0.2)
    for step in range(1, 101):
        optimizer.step()
        oracle.step()
        assert schedule(step, settings) == pytest.approx(oracle.get_last_lr()[0])


def test_hold_keeps_the_peak():
    settings = TrainConfig(steps=10, warmup=0.1, hold=0.5)
    assert [schedule(s, settings) for s in (1, 6, 8, 10)] == pytest.approx([1, 1, 0.5, 0])


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"learning_rate": 0.0}, {"learning_rate": -1.0}, {"learning_rate": 1.0},
     {"warmup": 0.6, "hold": 0.6}],
)  # fmt: skip
def test_silly_settings_are_refused(wrong):
    with pytest.raises(SettingError):
        TrainConfig(**{"steps": 5, **wrong})


def test_biases_and_layer_norms_are_not_decayed(tiny):
    import copy

    model = copy.deepcopy(tiny.model).requires_grad_(True)
    optimizer = make_optimizer(model, TrainConfig(steps=1, head_learning_rate=1e-3))
    decay = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    rate = {id(p): g["lr"] for g in optimizer.param_groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        plain = name.endswith("bias") or "LayerNorm" in name
        assert (decay[id(parameter)] == 0) is plain, name
        assert rate[id(parameter)] == (1e-3 if name.startswith("cls") else 5e-5), name
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def test_events_come_in_order_and_the_loss_falls(tiny):
    events = run(tiny, config(steps=40), held_out=TEXTS)
    steps = [e for e in events if isinstance(e, StepDone)]
    assert [e.step for e in steps] == list(range(1, 41))
    assert all(math.isfinite(e.loss) and e.samples_per_second > 0 for e in steps)
    measured = [e for e in events if isinstance(e, Measured)]
    assert [e.step for e in measured] == [0, *range(2, 41, 2)]
    assert measured[0].train_loss is None
    assert measured[1].train_loss == pytest.approx(np.mean([steps[0].loss, steps[1].loss]))
    assert measured[-1].result.held_out.loss < measured[0].result.held_out.loss - 1
    assert isinstance(events[-1], Done)


def test_the_model_that_was_passed_in_is_never_changed(tiny):
    before = weights(tiny.model).clone()
    trained = run(tiny, config())[-1].model
    assert torch.equal(weights(tiny.model), before)
    assert not torch.equal(weights(trained), before)
    assert not tiny.model.training
    assert not trained.training


def test_same_seed_same_run(tiny):
    def losses():
        return [e.loss for e in run(tiny, config()) if isinstance(e, StepDone)]

    first = losses()
    torch.rand(7)
    np.random.random(3)
    assert losses() == first


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(tiny, tmp_path):
    whole = run(tiny, config(steps=6))[-1].model
    events = pretrain(tiny, TEXTS, config(steps=6), checkpoint=tmp_path)
    for event in events:
        if isinstance(event, StepDone) and event.step == 5:
            events.close()
            break
    rest = run(tiny, config(steps=6), checkpoint=tmp_path)
    assert [e.step for e in rest if isinstance(e, StepDone)] == [5, 6]
    torch.testing.assert_close(weights(rest[-1].model), weights(whole), rtol=1e-5, atol=1e-6)


def test_closing_stops_at_once(tiny):
    events = pretrain(tiny, TEXTS, config(steps=1000))
    for event in events:
        if isinstance(event, StepDone):
            events.close()
            break
    assert next(events, None) is None


def test_a_step_without_targets_is_skipped_and_said(tiny):
    settings = config(steps=50, rate=0.01, batch_tokens=16)
    events = run(tiny, settings)
    skipped = [e for e in events if isinstance(e, StepSkipped)]
    losses = [e.loss for e in events if isinstance(e, StepDone)]
    assert len(skipped) + len(losses) == 50
    assert skipped
    assert np.isfinite(losses).all()


def test_batches_hold_every_item_once_and_are_alike_in_length():
    lengths = np.random.default_rng(0).integers(5, 100, 1000)
    batches = by_length(lengths, batch_tokens=1000, seed=1)
    assert sorted(np.concatenate(batches)) == list(range(1000))
    padded = sum(len(b) * lengths[b].max() for b in batches)
    assert padded / lengths.sum() < 1.1
    assert max(len(b) * lengths[b].max() for b in batches) <= 1000
    again = by_length(lengths, batch_tokens=1000, seed=1)
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    other = by_length(lengths, batch_tokens=1000, seed=2)
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(batches, other, strict=False))


def test_an_item_longer_than_a_batch_still_comes():
    assert [b.tolist() for b in by_length(np.array([50]), batch_tokens=10, seed=0)] == [[0]]


def test_bfloat16_is_asked_of_the_processor():
    capabilities = torch.cpu.get_capabilities()
    expected = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    assert has_bfloat16("cpu") is expected


def test_a_run_that_diverges_goes_back_to_its_last_measurement(tiny, monkeypatch):
    """The held-out loss of the model that it ends with is the last one that was measured."""
    right = MaskedLM.loss

    def wrong(self, model, batch, step):
        return right(self, model, batch, step) * (float("nan") if step == 4 else 1)

    monkeypatch.setattr(MaskedLM, "loss", wrong)
    events = run(tiny, config(steps=40))
    found = events[-2]
    assert found == Diverged(step=4, steps=40, restored=2)
    assert [e.step for e in events if isinstance(e, StepDone)] == [1, 2, 3]
    measured = [e for e in events if isinstance(e, Measured)][-1]
    assert measured.step == 2
    kept, _ = hold_out(chunk(tiny, TEXTS, 128))
    model = events[-1].model
    assert evaluate(tiny, kept, model=model).loss == measured.result.held_out.loss
    assert as_record(found) == {"event": "diverged", "step": 4, "restored": 2}


def test_a_learning_rate_that_diverges_never_gives_weights_that_are_no_numbers(tiny):
    with torch.no_grad():
        huge = copy.deepcopy(tiny.model)
        huge.get_input_embeddings().weight.mul_(1e30)
    events = run(wrap(huge, tiny.tokenizer, name="huge"), config(steps=4))
    assert torch.isfinite(weights(events[-1].model)).all()


@pytest.mark.parametrize("rows", [1, 3, 16])
def test_batches_of_rows_bring_every_item_once_and_pad_less(rows):
    lengths = np.random.default_rng(0).integers(3, 60, 50)
    batches = rows_by_length(lengths, rows=rows, seed=(1, 2))
    assert sorted(np.concatenate(batches)) == list(range(50))
    assert len(batches) == -(-50 // rows)
    assert max(map(len, batches)) == rows
    padded = sum(lengths[batch].max() * len(batch) for batch in batches)
    order = np.random.default_rng(3).permutation(50)
    at_random = [order[i : i + rows] for i in range(0, 50, rows)]
    assert padded <= sum(lengths[batch].max() * len(batch) for batch in at_random)
