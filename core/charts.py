"""Every Altair chart, one function each, from data frames with fixed column names.

Text of people and of vocabularies only ever stands in rows, never in column names or titles, so that
no character of it can mean anything to Vega. Colours keep their meaning on all pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

if TYPE_CHECKING:
    import pandas as pd

LEFT = "#D1478C"  # left context: pink
RIGHT = "#1B998B"  # right context: teal
TRUE = "#E0912F"  # the true token: amber, and always a star or a label beside it
OTHER = "#5B7DB1"  # everything else: blue
FADED = "#9AA5B8"

_ROW = 26  # pixels of a horizontal bar
_STAR = "★ "


def isolated(text: str) -> str:
    """Keep a token's writing direction to itself (Unicode Bidirectional Algorithm, FSI and PDI)."""
    return f"\u2068{text}\u2069"


def top_k(frame: pd.DataFrame) -> alt.Chart:
    """Bars of candidates: rank, token, probability, is_true; the true token starred."""
    data = frame.assign(
        label=[
            (_STAR if true else "") + isolated(token)
            for token, true in zip(frame["token"], frame["is_true"], strict=True)
        ]
    )
    order = alt.EncodingSortField("rank", op="min")
    bars = (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X("probability:Q", title=None, axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y(
                "label:N", sort=order, title=None, axis=alt.Axis(labelLimit=180, labelOverlap=False)
            ),
            color=alt.condition("datum.is_true", alt.value(TRUE), alt.value(OTHER)),
            tooltip=[
                alt.Tooltip("rank:Q", title="Rank"),
                alt.Tooltip("token:N", title="Token"),
                alt.Tooltip("probability:Q", title="Probability", format=".3%"),
            ],
        )
    )
    figures = bars.mark_text(align="left", dx=4, color=FADED).encode(
        text=alt.Text("probability:Q", format=".1%"), color=alt.value(FADED)
    )
    return (bars + figures).properties(height=_ROW * len(data) + 40)


def positions(frame: pd.DataFrame, chosen: int | None = None) -> alt.Chart:
    """p(true) at every position, its rank above; a click selects the position as `position`."""
    data = frame.assign(
        label=[
            f"{position} {isolated(token)}"
            for position, token in zip(frame["position"], frame["token"], strict=True)
        ],
        chosen=frame["position"] == chosen,
        place=["#" + format(rank, ",") for rank in frame["rank"]],
    )
    pick = alt.selection_point(name="picked", fields=["position"], on="click")
    base = alt.Chart(data).encode(
        x=alt.X(
            "label:N",
            sort=alt.EncodingSortField("position", op="min"),
            title="Position and token",
            axis=alt.Axis(labelAngle=-40, labelLimit=120, labelOverlap=False),
        ),
        tooltip=[
            alt.Tooltip("position:Q", title="Position"),
            alt.Tooltip("token:N", title="True token"),
            alt.Tooltip("p_true:Q", title="p(true)", format=".3%"),
            alt.Tooltip("rank:Q", title="Rank", format=","),
            alt.Tooltip("loss:Q", title="Loss (nats)", format=".3f"),
        ],
    )
    bars = base.mark_bar(cornerRadiusEnd=3, cursor="pointer").encode(
        y=alt.Y(
            "p_true:Q",
            title="p(true)",
            axis=alt.Axis(format="%"),
            scale=alt.Scale(domain=[0, 1]),
        ),
        color=alt.condition("datum.chosen", alt.value(TRUE), alt.value(OTHER)),
    )
    ranks = base.mark_text(dy=-8).encode(y="p_true:Q", text="place:N", color=alt.value(FADED))
    return (bars.add_params(pick) + ranks).properties(height=260)


def falls(frame: pd.DataFrame, hidden: int) -> alt.Chart:
    """How far log p(true) falls when each other token is hidden: position, token, fall.

    Left and right context by colour, and by their side of the hidden token on the axis.
    """
    data = frame.assign(
        label=[
            f"{position} {isolated(token)}"
            for position, token in zip(frame["position"], frame["token"], strict=True)
        ],
        side=["left" if position < hidden else "right" for position in frame["position"]],
    )
    return (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X("fall:Q", title="Fall of log p(true), nats (right of zero: it helped)"),
            y=alt.Y(
                "label:N",
                sort=alt.EncodingSortField("position", op="min"),
                title=None,
                axis=alt.Axis(labelLimit=180, labelOverlap=False),
            ),
            color=alt.Color(
                "side:N",
                title="Context",
                scale=alt.Scale(domain=["left", "right"], range=[LEFT, RIGHT]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("token:N", title="Token hidden as well"),
                alt.Tooltip("side:N", title="Context"),
                alt.Tooltip("fall:Q", title="Fall (nats)", format="+.3f"),
            ],
        )
        .properties(height=_ROW * len(data) + 60)
    )


def lens(frame: pd.DataFrame) -> alt.Chart:
    """What each layer would predict: layer, rank, token, probability, is_true."""
    data = frame.assign(
        label=[
            (_STAR if true else "") + isolated(token)
            for token, true in zip(frame["token"], frame["is_true"], strict=True)
        ]
    )
    base = alt.Chart(data).encode(
        x=alt.X("rank:O", title="Rank", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("layer:O", sort="descending", title="Layer (0 is the input)"),
    )
    cells = base.mark_rect(strokeWidth=2, cornerRadius=3).encode(
        color=alt.Color(
            "probability:Q",
            title="Probability",
            scale=alt.Scale(range=["#DCE5F4", "#2F4E8F"], domain=[0, 1]),
            legend=alt.Legend(format="%", orient="right"),
        ),
        stroke=alt.condition("datum.is_true", alt.value(TRUE), alt.value("transparent")),
        tooltip=[
            alt.Tooltip("layer:O", title="Layer"),
            alt.Tooltip("token:N", title="Token"),
            alt.Tooltip("probability:Q", title="Probability", format=".3%"),
        ],
    )
    words = base.mark_text(limit=110, fontSize=13).encode(
        text="label:N",
        color=alt.condition("datum.probability > 0.45", alt.value("#FFFFFF"), alt.value("#1D2433")),
    )
    layers = data["layer"].nunique()
    return (cells + words).properties(height=38 * layers + 40)


def candidates(frame: pd.DataFrame) -> alt.Chart:
    """Own candidates, by log p: candidate, pieces, count, log_p, probability."""
    data = frame.assign(label=[isolated(word) for word in frame["candidate"]])
    bars = (
        alt.Chart(data)
        .mark_bar(color=OTHER, cornerRadiusEnd=3)
        .encode(
            x=alt.X("log_p:Q", title="log p, nats (nearer to zero is more probable)"),
            y=alt.Y(
                "label:N", sort="-x", title=None, axis=alt.Axis(labelLimit=180, labelOverlap=False)
            ),
            tooltip=[
                alt.Tooltip("candidate:N", title="Candidate"),
                alt.Tooltip("pieces:N", title="Pieces"),
                alt.Tooltip("log_p:Q", title="log p (nats)", format=".3f"),
                alt.Tooltip("probability:Q", title="Probability", format=".3%"),
            ],
        )
    )
    return bars.properties(height=_ROW * len(data) + 40)


def word_pairs(frame: pd.DataFrame) -> alt.Chart:
    """log p of two sentences, word by word: row, first, first_log_p, second, second_log_p."""
    import pandas as pd

    sides = [
        pd.DataFrame(
            {
                "row": frame["row"],
                "word": frame[name],
                "log_p": frame[f"{name}_log_p"],
                "sentence": name,
            }
        ).dropna(subset=["log_p"])
        for name in ("first", "second")
    ]
    both = [
        " / ".join(dict.fromkeys(isolated(word) for word in pair if isinstance(word, str)))
        for pair in zip(frame["first"], frame["second"], strict=True)
    ]
    data = pd.concat(sides, ignore_index=True)
    data["label"] = [f"{row} {both[row]}" for row in data["row"]]
    return (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("log_p:Q", title="log p(word), nats (nearer to zero is more expected)"),
            y=alt.Y(
                "label:N",
                sort=alt.EncodingSortField("row", op="min"),
                title=None,
                axis=alt.Axis(labelLimit=220, labelOverlap=False),
            ),
            yOffset=alt.YOffset("sentence:N", sort=["first", "second"]),
            color=alt.Color(
                "sentence:N",
                title="Sentence",
                scale=alt.Scale(domain=["first", "second"], range=[OTHER, "#7A5FB0"]),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                alt.Tooltip("sentence:N", title="Sentence"),
                alt.Tooltip("word:N", title="Word"),
                alt.Tooltip("log_p:Q", title="log p (nats)", format=".3f"),
            ],
        )
        .properties(height=36 * frame["row"].nunique() + 60)
    )
