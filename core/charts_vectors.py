"""Charts of the pages on vectors: maps, curves over layers, matrices of cosines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from core.charts import FADED, GROUPS, OTHER, drawing

if TYPE_CHECKING:
    import pandas as pd

SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]


@drawing(lambda frame: frame, bands="group")
def word_map(data: pd.DataFrame, _: int) -> alt.Chart:
    """Uses of a word in the plane by sense: x, y, group, text (the word marked), near_1 to near_3."""
    bare = alt.Axis(labels=False, ticks=False, grid=False, title=None, domain=False)
    return (
        alt.Chart(data)
        .mark_point(filled=True, size=120, opacity=0.85)
        .encode(
            x=alt.X("x:Q", axis=bare, scale=alt.Scale(zero=False, padding=18)),
            y=alt.Y("y:Q", axis=bare, scale=alt.Scale(zero=False, padding=18)),
            color=alt.Color(
                "group:N",
                title=None,
                scale=alt.Scale(range=GROUPS),
                legend=alt.Legend(orient="top", labelLimit=140),
            ),
            shape=alt.Shape("group:N", title=None, scale=alt.Scale(range=SHAPES)),
            tooltip=[
                alt.Tooltip("group:N", title="Sense"),
                alt.Tooltip("text:N", title="Sentence"),
                alt.Tooltip("near_1:N", title="Nearest"),
                alt.Tooltip("near_2:N", title="2nd"),
                alt.Tooltip("near_3:N", title="3rd"),
            ],
        )
        .properties(height=330)
    )


def _melted(frame: pd.DataFrame, layer: int) -> pd.DataFrame:
    names = {
        "accuracy": "neighbour accuracy",
        "chance": "chance",
        "silhouette": "silhouette",
    }
    rows = frame.rename(columns=names).melt("layer", list(names.values()), "figure", "value")
    return rows.dropna(subset=["value"]).assign(now=lambda r: r["layer"] == layer)


@drawing(_melted, bands="figure")
def layer_curve(data: pd.DataFrame, _: int) -> alt.Chart:
    """Separation of the senses by layer, the chosen layer larger: layer, accuracy, chance, silhouette."""
    domain = ["neighbour accuracy", "silhouette", "chance"]
    base = alt.Chart(data).encode(
        x=alt.X("layer:O", title="Layer (0: static input vector)", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("value:Q", title=None),
        color=alt.Color(
            "figure:N",
            title=None,
            scale=alt.Scale(domain=domain, range=[OTHER, GROUPS[3], FADED]),
            legend=alt.Legend(
                orient="top", labelLimit=200, symbolType="stroke", symbolStrokeWidth=3
            ),
        ),
        strokeDash=alt.StrokeDash(
            "figure:N", scale=alt.Scale(domain=domain, range=[[1, 0], [6, 3], [2, 3]]), legend=None
        ),
    )
    points = base.mark_point(filled=True).encode(
        size=alt.condition("datum.now", alt.value(170), alt.value(35)),
        tooltip=[
            alt.Tooltip("layer:O", title="Layer"),
            alt.Tooltip("figure:N", title="Figure"),
            alt.Tooltip("value:Q", title="Value", format=".3f"),
        ],
    )
    return (base.mark_line() + points).properties(height=280)


@drawing(lambda frame: frame, bands="row")
def cosine_matrix(data: pd.DataFrame, count: int) -> alt.Chart:
    """Cosine of each pair: row, column (names in the order of row_number), one, other, cosine."""
    size = max(6, min(34, 440 // max(1, count)))
    order = alt.EncodingSortField("row_number", order="ascending")
    across = alt.EncodingSortField("column_number", order="ascending")
    axis = alt.Axis(labelLimit=130, labelOverlap=False, labels=count <= 48, ticks=False)
    return (
        alt.Chart(data)
        .mark_rect()
        .encode(
            x=alt.X("column:N", title=None, sort=across, axis=alt.Axis(labels=False, ticks=False)),
            y=alt.Y("row:N", title=None, sort=order, axis=axis),
            color=alt.Color(
                "cosine:Q",
                title="Cosine",
                scale=alt.Scale(range=["#F1F4FA", "#7F9CCB", "#243F78"], zero=False),
                legend=alt.Legend(orient="bottom", gradientLength=140, titleOrient="left"),
            ),
            tooltip=[
                alt.Tooltip("one:N", title="One"),
                alt.Tooltip("other:N", title="Other"),
                alt.Tooltip("cosine:Q", title="Cosine", format=".3f"),
            ],
        )
        .properties(height=size * count + 70)
    )


@drawing(lambda frame: frame, bands="name")
def correlations(data: pd.DataFrame, count: int) -> alt.Chart:
    """Correlation of each kind of vectors with its interval: name, rho, low, high."""
    axis = alt.Axis(labelLimit=260)
    base = alt.Chart(data).encode(y=alt.Y("name:N", title=None, sort=None, axis=axis))
    tooltip = [
        alt.Tooltip("name:N", title="Vectors"),
        alt.Tooltip("rho:Q", title="Spearman", format=".3f"),
        alt.Tooltip("low:Q", title="from", format=".3f"),
        alt.Tooltip("high:Q", title="to", format=".3f"),
    ]
    lines = base.mark_rule(color=OTHER, strokeWidth=3).encode(
        x=alt.X(
            "low:Q",
            title="Spearman correlation with the grades",
            axis=alt.Axis(tickCount=6, format=".1f"),
        ),
        x2="high:Q",
    )
    points = base.mark_point(filled=True, size=140, color=OTHER, opacity=1).encode(
        x="rho:Q", tooltip=tooltip
    )
    return (lines + points).properties(height=50 * count + 30)


@drawing(lambda frame: frame, bands="name")
def grades(data: pd.DataFrame, count: int) -> alt.Chart:
    """Cosine of each pair against its grade, a panel for each kind of vectors, in the order of
    number: name, number, grade, cosine, one, other."""
    return (
        alt.Chart(data)
        .mark_point(filled=True, opacity=0.6, color=OTHER, size=50)
        .encode(
            x=alt.X("grade:Q", title="Grade", scale=alt.Scale(domain=[0, 5])),
            y=alt.Y("cosine:Q", title="Cosine", scale=alt.Scale(zero=False)),
            tooltip=[
                alt.Tooltip("one:N", title="One"),
                alt.Tooltip("other:N", title="Other"),
                alt.Tooltip("grade:Q", title="Grade"),
                alt.Tooltip("cosine:Q", title="Cosine", format=".3f"),
            ],
        )
        .properties(width=230, height=230)
        .facet(
            column=alt.Column("name:N", title=None, sort=alt.EncodingSortField("number", op="min"))
        )
    )
