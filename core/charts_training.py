"""Charts of the training pages: curves of a run, and what a classifier confuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import altair as alt

from core.charts import FADED, GROUPS, KEPT, MASKED, OTHER, RANDOM, drawing, isolated

if TYPE_CHECKING:
    import pandas as pd

ROOMY = 24  # labels up to which a confusion matrix can be read


def _loss_rows(history: pd.DataFrame, step: int) -> pd.DataFrame:
    names = {"train_loss": "train", "held_out_loss": "held out"}
    rows = history.rename(columns=names).melt("step", list(names.values()), "curve", "value")
    return rows.dropna(subset=["value"]).assign(now=rows["step"] == step)


def _p_true_rows(history: pd.DataFrame, step: int) -> pd.DataFrame:
    names = {"p_mask": "masked", "p_random": "random", "p_keep": "kept"}
    rows = history.rename(columns=names).melt("step", list(names.values()), "curve", "value")
    return rows.assign(now=rows["step"] == step)


def _by_step(
    curves: dict[str, str], title: str, form: str, x: str = "Step"
) -> Callable[[pd.DataFrame, int], alt.Chart]:
    def build(data: pd.DataFrame, _: int) -> alt.Chart:
        base = alt.Chart(data).encode(
            x=alt.X("step:Q", title=x, axis=alt.Axis(tickMinStep=1, format="d")),
            y=alt.Y(
                "value:Q", title=title, axis=alt.Axis(format=form), scale=alt.Scale(zero=False)
            ),
            color=alt.Color(
                "curve:N",
                title=None,
                scale=alt.Scale(domain=list(curves), range=list(curves.values())),
                legend=alt.Legend(orient="top", symbolType="stroke", symbolStrokeWidth=3),
            ),
        )
        lines = base.mark_line().encode(strokeDash=alt.StrokeDash("curve:N", legend=None))
        points = base.mark_point(filled=True).encode(
            size=alt.condition("datum.now", alt.value(140), alt.value(30)),
            tooltip=[
                alt.Tooltip("step:Q", title=x),
                alt.Tooltip("curve:N", title="Curve"),
                alt.Tooltip("value:Q", title=title, format=".4f"),
            ],
        )
        return (lines + points).properties(height=280)

    build.__doc__ = f"{title} by {x.lower()} of a run, the one on show larger: {', '.join(curves)}."
    return build


run_loss = drawing(_loss_rows, bands="curve")(
    _by_step({"train": FADED, "held out": OTHER}, "Loss (nats)", ".1f")
)
run_p_true = drawing(_p_true_rows, bands="curve")(
    _by_step({"masked": MASKED, "random": RANDOM, "kept": KEPT}, "Mean p(true)", "%")
)


@drawing(lambda frame: frame.assign(curve="train"), bands="curve")
def live_loss(data: pd.DataFrame, _: int) -> alt.Chart:
    """Loss of each step as a run goes on: step, loss."""
    return (
        alt.Chart(data)
        .mark_line(color=OTHER)
        .encode(
            x=alt.X("step:Q", title="Step"),
            y=alt.Y("loss:Q", title="Loss (nats)", scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("step:Q", title="Step"),
                alt.Tooltip("loss:Q", title="Loss (nats)", format=".3f"),
            ],
        )
        .properties(height=260)
    )


@drawing(lambda frame: frame.assign(dark=frame["rows"] > frame["rows"].max() / 2), bands="true")
def confusion(data: pd.DataFrame, count: int) -> alt.Chart:
    """Counts of test rows by true and predicted label; a click selects `cell`: true, predicted, rows."""
    cell = alt.selection_point(name="cell", fields=["true", "predicted"], on="click")
    base = alt.Chart(data).encode(
        x=alt.X("predicted:N", title="Predicted", axis=alt.Axis(labelAngle=0, labelLimit=120)),
        y=alt.Y("true:N", title="True", axis=alt.Axis(labelLimit=120)),
        tooltip=[
            alt.Tooltip("true:N", title="True"),
            alt.Tooltip("predicted:N", title="Predicted"),
            alt.Tooltip("rows:Q", title="Rows"),
        ],
    )
    cells = (
        base.mark_rect(cornerRadius=3, cursor="pointer")
        .encode(
            color=alt.Color(
                "rows:Q", title="Rows", scale=alt.Scale(range=["#DCE5F4", "#2F4E8F"], zero=True)
            )
        )
        .add_params(cell)
    )
    figures = base.mark_text(fontSize=14, cursor="pointer").encode(
        text="rows:Q",
        color=alt.condition("datum.dark", alt.value("#FFFFFF"), alt.value("#1D2433")),
    )
    return (cells + figures).properties(height=max(150, 40 * count + 80))


epoch_loss = drawing(_loss_rows, bands="curve")(
    _by_step({"train": FADED, "held out": OTHER}, "Loss (nats)", ".3~g", x="Epoch")
)


def _at_epoch(frame: pd.DataFrame, epoch: int) -> pd.DataFrame:
    return frame.assign(now=frame["epoch"] == epoch)


@drawing(_at_epoch)
def label_probabilities(data: pd.DataFrame, _: int) -> alt.Chart:
    """Probability of each label for one text, epoch by epoch, the epoch on show larger."""
    base = alt.Chart(data).encode(
        x=alt.X("epoch:Q", title="Epoch", axis=alt.Axis(tickMinStep=1, format="d")),
        y=alt.Y(
            "probability:Q",
            title="P(label)",
            scale=alt.Scale(domain=[0, 1]),
            axis=alt.Axis(format="%"),
        ),
        color=alt.Color(
            "label:N",
            title=None,
            scale=alt.Scale(range=GROUPS),
            legend=alt.Legend(orient="top", labelLimit=160),
        ),
    )
    points = base.mark_point(filled=True).encode(
        size=alt.condition("datum.now", alt.value(140), alt.value(30)),
        shape=alt.Shape("label:N", title=None),
        tooltip=[
            alt.Tooltip("epoch:Q", title="Epoch"),
            alt.Tooltip("label:N", title="Label"),
            alt.Tooltip("probability:Q", title="Probability", format=".2%"),
        ],
    )
    return (base.mark_line() + points).properties(height=260)


def _before_after(frame: pd.DataFrame) -> pd.DataFrame:
    labels = [
        f"{position} {isolated(token)}"
        for position, token in zip(frame["position"], frame["token"], strict=True)
    ]
    rows = frame.assign(label=labels)
    return rows.melt(["position", "token", "label"], ["before", "after"], "when", "weight")


@drawing(_before_after)
def attention_change(data: pd.DataFrame, count: int) -> alt.Chart:
    """Attention of [CLS] to each token before and after: position, token, before, after."""
    order = alt.EncodingSortField("position", order="ascending")
    return (
        alt.Chart(data)
        .mark_bar(cornerRadius=2)
        .encode(
            y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=180)),
            yOffset=alt.YOffset("when:N", sort=["before", "after"]),
            x=alt.X("weight:Q", title="Attention", axis=alt.Axis(format="%")),
            color=alt.Color(
                "when:N",
                title=None,
                sort=["before", "after"],
                scale=alt.Scale(domain=["before", "after"], range=[FADED, OTHER]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("token:N", title="Token"),
                alt.Tooltip("when:N", title="When"),
                alt.Tooltip("weight:Q", title="Attention", format=".2%"),
            ],
        )
        .properties(height=26 * count + 60)
    )


@drawing(lambda frame: frame, bands="layer")
def cls_change(data: pd.DataFrame, _: int) -> alt.Chart:
    """Cosine of the [CLS] vectors before and after, by layer: layer, cosine."""
    return (
        alt.Chart(data)
        .mark_line(color=OTHER, point=alt.OverlayMarkDef(filled=True, size=60, color=OTHER))
        .encode(
            x=alt.X("layer:O", title="Layer", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("cosine:Q", title="Cosine, before and after", scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("layer:O", title="Layer"),
                alt.Tooltip("cosine:Q", title="Cosine", format=".4f"),
            ],
        )
        .properties(height=260)
    )
