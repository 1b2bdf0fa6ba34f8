"""Every Altair chart, one function each, from data frames with fixed column names.

Text of people and of vocabularies only ever stands in rows, never in column names or titles, so that
no character of it can mean anything to Vega. Colours keep their meaning on all pages.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import altair as alt

if TYPE_CHECKING:
    import pandas as pd

alt.data_transformers.disable_max_rows()  # the heads of one sentence are 5,832 cells

LEFT = "#D1478C"  # left context: pink
RIGHT = "#1B998B"  # right context: teal
LEFT_NAME, RIGHT_NAME = "violet", "green"  # Streamlit's names of text colours nearest to them
TRUE = "#E0912F"  # the true token: amber, and always a star or a label beside it
OTHER = "#5B7DB1"  # everything else: blue
FADED = "#9AA5B8"
MASKED, RANDOM, KEPT = "#7A5FB0", "#A65B2A", "#6B7280"  # what training puts in a token's place
# groups of no fixed meaning: senses, labels, clusters; none is a colour that means something above
GROUPS = ["#5B7DB1", "#B23A48", "#3E8E41", "#8A6FBF", "#A88B2C", "#2E9CB5", "#8C564B", "#6B7280"]

_ROW = 26  # pixels of a horizontal bar
_STAR = "★ "


def isolated(text: str) -> str:
    """Keep a token's writing direction to itself (Unicode Bidirectional Algorithm, FSI and PDI)."""
    return f"\u2068{text}\u2069"


class Drawing:
    """A chart in two steps: the frame it is called with becomes rows, the rows a chart.

    Building and validating a specification takes Altair tens of milliseconds, on every move of a
    slider. It depends on nothing but the number of bands, so `parts` builds it once for each; only
    the rows are new.
    """

    def __init__(
        self,
        prepare: Callable[..., pd.DataFrame],
        build: Callable[[pd.DataFrame, int], alt.Chart],
        bands: str,
    ) -> None:
        self._prepare, self._build, self._bands = prepare, build, bands
        self._specs: dict[int, dict[str, Any]] = {}
        self.__doc__ = build.__doc__

    def __call__(self, frame: pd.DataFrame, *args: Any) -> alt.Chart:
        rows = self._prepare(frame, *args)
        return self._build(rows, rows[self._bands].nunique())

    def parts(self, frame: pd.DataFrame, *args: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The rows, and the Vega-Lite specification without them."""
        rows = self._prepare(frame, *args)
        count = rows[self._bands].nunique()
        if count not in self._specs:
            spec = self._build(rows.head(1), count).to_dict()
            self._specs[count] = {k: v for k, v in spec.items() if k not in ("data", "datasets")}
        return rows, copy.deepcopy(self._specs[count])


def drawing(
    prepare: Callable[..., pd.DataFrame], bands: str = "label"
) -> Callable[[Callable[[pd.DataFrame, int], alt.Chart]], Drawing]:
    return lambda build: Drawing(prepare, build, bands)


def _starred(frame: pd.DataFrame) -> pd.DataFrame:
    """Tokens to show: isolated, the true one with a star."""
    labels = [
        (_STAR if true else "") + isolated(token)
        for token, true in zip(frame["token"], frame["is_true"], strict=True)
    ]
    return frame.assign(label=labels)


def _numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """Tokens to show with their position, so that repeated ones stay apart."""
    pairs = zip(frame["position"], frame["token"], strict=True)
    return frame.assign(label=[f"{position} {isolated(token)}" for position, token in pairs])


def _bars_axis(limit: int = 180) -> alt.Axis:
    return alt.Axis(labelLimit=limit, labelOverlap=False)


def as_svg(rows: pd.DataFrame, spec: dict[str, Any], *, width: int = 720) -> str:
    """A chart, as `Drawing.parts` gives it, as SVG on white; `width` where it names none (pixels)."""
    import vl_convert

    whole = {"width": width, **spec, "data": {"values": rows.to_dict("records")}}
    if "facet" in spec:  # a row of panels has the width of its panels
        del whole["width"]
    return vl_convert.vegalite_to_svg(whole, vl_version="6.4")


@drawing(_starred)
def top_k(data: pd.DataFrame, count: int) -> alt.Chart:
    """Bars of candidates: rank, token, probability, is_true; the true token starred."""
    order = alt.EncodingSortField("rank", op="min")
    bars = (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X("probability:Q", title=None, axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y("label:N", sort=order, title=None, axis=_bars_axis()),
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
    return (bars + figures).properties(height=_ROW * count + 40)


def _with_chosen(frame: pd.DataFrame, chosen: int | None = None) -> pd.DataFrame:
    return _numbered(frame).assign(
        chosen=frame["position"] == chosen,
        place=["#" + format(rank, ",") for rank in frame["rank"]],
    )


@drawing(_with_chosen)
def positions(data: pd.DataFrame, _: int) -> alt.Chart:
    """p(true) at every position, its rank above; a click selects the position as `position`."""
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


def _with_side(frame: pd.DataFrame, hidden: int) -> pd.DataFrame:
    sides = ["left" if position < hidden else "right" for position in frame["position"]]
    return _numbered(frame).assign(side=sides)


@drawing(_with_side)
def falls(data: pd.DataFrame, count: int) -> alt.Chart:
    """How far log p(true) falls when each other token is hidden: position, token, fall.

    Left and right context by colour, and by their side of the hidden token on the axis.
    """
    return (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X("fall:Q", title="Fall of log p(true), nats (right of zero: it helped)"),
            y=alt.Y(
                "label:N",
                sort=alt.EncodingSortField("position", op="min"),
                title=None,
                axis=_bars_axis(),
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
        .properties(height=_ROW * count + 60)
    )


@drawing(_starred, bands="layer")
def lens(data: pd.DataFrame, count: int) -> alt.Chart:
    """What each layer would predict: layer, rank, token, probability, is_true."""
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
    return (cells + words).properties(height=38 * count + 40)


@drawing(lambda frame: frame.assign(label=[isolated(word) for word in frame["candidate"]]))
def candidates(data: pd.DataFrame, count: int) -> alt.Chart:
    """Own candidates, by log p: candidate, pieces, count, log_p, probability."""
    bars = (
        alt.Chart(data)
        .mark_bar(color=OTHER, cornerRadiusEnd=3)
        .encode(
            x=alt.X(
                "log_p:Q",
                title="log p, nats (nearer to zero is more probable)",
                axis=alt.Axis(tickCount=8),
            ),
            y=alt.Y("label:N", sort="-x", title=None, axis=_bars_axis()),
            tooltip=[
                alt.Tooltip("candidate:N", title="Candidate"),
                alt.Tooltip("pieces:N", title="Pieces"),
                alt.Tooltip("log_p:Q", title="log p (nats)", format=".3f"),
                alt.Tooltip("probability:Q", title="Probability", format=".3%"),
            ],
        )
    )
    return bars.properties(height=_ROW * count + 40)


def _by_sentence(frame: pd.DataFrame) -> pd.DataFrame:
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
    return data


@drawing(_by_sentence, bands="row")
def word_pairs(data: pd.DataFrame, count: int) -> alt.Chart:
    """log p of two sentences, word by word: row, first, first_log_p, second, second_log_p."""
    return (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=alt.X("log_p:Q", title="log p(word), nats (nearer to zero is more expected)"),
            y=alt.Y(
                "label:N",
                sort=alt.EncodingSortField("row", op="min"),
                title=None,
                axis=_bars_axis(220),
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
        .properties(height=36 * count + 60)
    )


@drawing(lambda frame: frame, bands="selected")
def draws(data: pd.DataFrame, _: int) -> alt.Chart:
    """Share of draws by number of selected tokens, and the law: selected, share, expected."""
    base = alt.Chart(data).encode(
        x=alt.X("selected:O", title="Tokens selected", axis=alt.Axis(labelAngle=0)),
        tooltip=[
            alt.Tooltip("selected:Q", title="Selected"),
            alt.Tooltip("share:Q", title="Share of draws", format=".2%"),
            alt.Tooltip("expected:Q", title="Binomial law", format=".2%"),
        ],
    )
    bars = base.mark_bar(color=OTHER, cornerRadiusEnd=2).encode(
        y=alt.Y("share:Q", title="Share of draws", axis=alt.Axis(format="%"))
    )
    law = base.mark_line(color=TRUE, point=alt.OverlayMarkDef(color=TRUE, shape="diamond"))
    return (bars + law.encode(y="expected:Q")).properties(height=260)


def _by_rate(value: str, title: str, form: str) -> Callable[[pd.DataFrame, int], alt.Chart]:
    def build(data: pd.DataFrame, _: int) -> alt.Chart:
        base = alt.Chart(data).encode(
            x=alt.X("rate:Q", title="Share of tokens masked", axis=alt.Axis(format="%"))
        )
        y = alt.Y(
            f"{value}:Q", title=title, axis=alt.Axis(format=form), scale=alt.Scale(zero=False)
        )
        line = base.mark_line(color=OTHER, point=alt.OverlayMarkDef(color=OTHER)).encode(
            y=y,
            tooltip=[
                alt.Tooltip("rate:Q", title="Masked", format=".0%"),
                alt.Tooltip(f"{value}:Q", title=title, format=".3f"),
                alt.Tooltip(f"{value}_error:Q", title="Standard error", format=".3f"),
            ],
        )
        low, high = f"datum.{value} - datum.{value}_error", f"datum.{value} + datum.{value}_error"
        errors = (
            base.transform_calculate(low=low, high=high)
            .mark_rule(color=OTHER)
            .encode(y=alt.Y("low:Q", title=title), y2="high:Q")
        )
        return (errors + line).properties(height=260)

    build.__doc__ = f"{title} by masking rate: rate, {value}, {value}_error."
    return build


loss_by_rate = drawing(lambda frame: frame, bands="rate")(_by_rate("loss", "Loss (nats)", ".1f"))
accuracy_by_rate = drawing(lambda frame: frame, bands="rate")(
    _by_rate("accuracy", "Top-1 accuracy", "%")
)


def _arc_points(frame: pd.DataFrame, focus: int) -> pd.DataFrame:
    """Half ellipses from the focus to every other token, as points along each."""
    import numpy as np
    import pandas as pd

    turn = np.linspace(0, np.pi, 25)
    arcs = []
    for place, token, weight in frame[["place", "token", "weight"]].itertuples(index=False):
        middle, radius = (place + focus) / 2, abs(place - focus) / 2
        arcs.append(
            pd.DataFrame(
                {
                    "place": place,
                    "label": isolated(token),
                    "side": _side(place, focus),
                    "weight": weight,
                    "step": range(25),
                    "x": middle - radius * np.cos(turn),
                    "height": radius * np.sin(turn),
                }
            )
        )
    return pd.concat(arcs, ignore_index=True)


def _side(place: int, focus: int) -> str:
    return "left" if place < focus else "right" if place > focus else "self"


def _side_colour() -> alt.Color:
    return alt.Color(
        "side:N",
        title="Context",
        scale=alt.Scale(domain=["left", "self", "right"], range=[LEFT, TRUE, RIGHT]),
        legend=alt.Legend(orient="top"),
    )


@drawing(_arc_points, bands="place")
def arcs(data: pd.DataFrame, _: int) -> alt.Chart:
    """Attention from the focus token to each other one: place, token, weight."""
    base = alt.Chart(data)
    across = alt.X("x:Q", title=None, axis=None, scale=alt.Scale(nice=False, padding=40))
    tooltip = [
        alt.Tooltip("label:N", title="To"),
        alt.Tooltip("side:N", title="Context"),
        alt.Tooltip("weight:Q", title="Weight", format=".3f"),
    ]
    lines = base.mark_line(strokeCap="round").encode(
        x=across,
        y=alt.Y("height:Q", title=None, axis=None),
        order="step:Q",
        detail="place:N",
        color=_side_colour(),
        strokeWidth=alt.StrokeWidth(
            "weight:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[0.5, 24])
        ),
        opacity=alt.value(0.75),
        tooltip=tooltip,
    )
    once = base.transform_filter("datum.step == 0")
    place = alt.X("place:Q", title=None, axis=None)
    words = once.mark_text(dy=16, fontSize=14).encode(
        x=place, y=alt.datum(0), text="label:N", color=_side_colour(), tooltip=tooltip
    )
    figures = once.mark_text(dy=34, fontSize=11, color=FADED).encode(
        x=place, y=alt.datum(0), text=alt.Text("weight:Q", format=".2f"), color=alt.value(FADED)
    )
    return (lines + words + figures).properties(height=280)


def _with_place(frame: pd.DataFrame, focus: int) -> pd.DataFrame:
    pairs = zip(frame["place"], frame["token"], strict=True)
    return frame.assign(
        label=[f"{place} {isolated(token)}" for place, token in pairs],
        side=[_side(place, focus) for place in frame["place"]],
    )


@drawing(_with_place)
def rollout(data: pd.DataFrame, _: int) -> alt.Chart:
    """Share of each input token in the focus token: place, token, weight."""
    return (
        alt.Chart(data)
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X(
                "label:N",
                sort=alt.EncodingSortField("place", op="min"),
                title=None,
                axis=alt.Axis(labelAngle=-40, labelLimit=120, labelOverlap=False),
            ),
            y=alt.Y("weight:Q", title="Share"),
            color=_side_colour(),
            tooltip=[
                alt.Tooltip("token:N", title="Token"),
                alt.Tooltip("weight:Q", title="Share", format=".3f"),
            ],
        )
        .properties(height=240)
    )


@drawing(_numbered)
def sides(data: pd.DataFrame, _: int) -> alt.Chart:
    """log p(true) at every position from each side: position, token, side, loss, rank."""
    order = ["left", "right", "both"]
    return (
        alt.Chart(data)
        .transform_calculate(log_p="-datum.loss")
        .mark_point(filled=True, size=90)
        .encode(
            x=alt.X(
                "label:N",
                sort=alt.EncodingSortField("position", op="min"),
                title="Position and token",
                axis=alt.Axis(labelAngle=-40, labelLimit=120, labelOverlap=False, grid=True),
            ),
            y=alt.Y("log_p:Q", title="log p(true), nats"),
            color=alt.Color(
                "side:N",
                title="Seen",
                sort=order,
                scale=alt.Scale(domain=order, range=[LEFT, RIGHT, OTHER]),
                legend=alt.Legend(orient="top"),
            ),
            shape=alt.Shape(
                "side:N",
                sort=order,
                scale=alt.Scale(domain=order, range=["triangle-left", "triangle-right", "circle"]),
            ),
            tooltip=[
                alt.Tooltip("token:N", title="True token"),
                alt.Tooltip("side:N", title="Seen"),
                alt.Tooltip("log_p:Q", title="log p(true)", format=".3f"),
                alt.Tooltip("rank:Q", title="Rank", format=","),
            ],
        )
        .properties(height=280)
    )


@drawing(lambda frame: frame, bands="key")
def head_grid(data: pd.DataFrame, _: int) -> alt.Chart:
    """Every head as a small heat map: layer, head, query, key, weight; a click selects `opened`."""
    opened = alt.selection_point(name="opened", fields=["layer", "head"], on="click")
    bare = alt.Axis(labels=False, ticks=False, domain=False)
    return (
        alt.Chart(data)
        .mark_rect(cursor="pointer")
        .encode(
            x=alt.X("key:O", title=None, axis=bare),
            y=alt.Y("query:O", title=None, axis=bare),
            color=alt.Color(
                "weight:Q",
                title="Weight",
                scale=alt.Scale(range=["#DCE5F4", "#2F4E8F"], domain=[0, 1]),
            ),
            row=alt.Row("layer:O", title="Layer", spacing=4),
            column=alt.Column("head:O", title="Head", spacing=4),
            tooltip=[
                alt.Tooltip("layer:O", title="Layer"),
                alt.Tooltip("head:O", title="Head"),
                alt.Tooltip("weight:Q", title="Weight", format=".3f"),
            ],
        )
        .add_params(opened)
        .properties(width=58, height=58)
    )
