"""The map of a corpus: many points, drawn by the graphics card, selected by box or lasso.

Plotly's scattergl draws it: it selects by box and lasso, which deck.gl as Streamlit carries it does
not, and it needs WebGL only, which every browser has. Every other chart is Altair's, in `charts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from core.charts import GROUPS, TRUE

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 120  # characters of a text in its tooltip
MOST_GROUPS = 20  # with more, a legend can't be read


def corpus_map(frame: pd.DataFrame) -> Any:
    """A Plotly figure of x, y, text, group, found (bool, of a search); `customdata` is the row."""
    import plotly.graph_objects as go

    figure = go.Figure()
    groups = _groups(frame["group"])
    for number, group in enumerate(groups.unique()):
        part = frame[groups == group]
        figure.add_trace(
            go.Scattergl(
                x=part["x"],
                y=part["y"],
                mode="markers",
                name=_plain(str(group)),
                text=[_plain(text) for text in part["text"]],
                customdata=part.index,
                hovertemplate="%{text}<extra>%{fullData.name}</extra>",
                marker={
                    "color": GROUPS[number % len(GROUPS)],
                    "size": 7 if len(frame) < 5000 else 3,
                    "opacity": 0.75,
                },
            )
        )
    found = frame[frame["found"]]
    if len(found):
        figure.add_trace(_found_trace(found))
    figure.update_layout(
        height=560,
        margin={"l": 0, "r": 0, "t": 10, "b": 0},
        dragmode="pan",
        legend={"orientation": "h", "y": -0.02, "itemsizing": "constant"},
        xaxis={"visible": False},
        yaxis={"visible": False, "scaleanchor": "x"},
    )
    return figure


def _found_trace(found: pd.DataFrame) -> Any:
    import plotly.graph_objects as go

    return go.Scattergl(
        x=found["x"],
        y=found["y"],
        mode="markers",
        name="found",
        text=[_plain(text) for text in found["text"]],
        customdata=found.index,
        hovertemplate="%{text}<extra>found</extra>",
        marker={"symbol": "star", "size": 15, "color": TRUE, "line": {"width": 1}},
    )


def _groups(groups: pd.Series) -> pd.Series:
    """The commonest groups, the others as one."""
    kept = groups.value_counts().index[:MOST_GROUPS]
    return groups.where(groups.isin(kept), "(other)")


def _plain(text: str) -> str:
    """Text that Plotly, which reads a little HTML, shows as it is; long ones end in an ellipsis."""
    short = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def selected_rows(event: Any) -> np.ndarray:
    """Rows of the points that were selected on the map, sorted."""
    points = event["selection"]["points"] if event else []
    rows = {int(np.ravel(point["customdata"])[0]) for point in points if "customdata" in point}
    return np.array(sorted(rows), dtype=int)
