from xml.etree import ElementTree

import pandas as pd
import pytest

from core import charts
from core.comparison import compare_candidates, compare_sentences
from core.context import score_sides
from core.prediction import layer_lens, occlusion, score_positions

HOSTILE = ["v1.0", "a[b]", "x:y", "it's", "<img src=x onerror=alert(1)>", "$5 *b*", "אב"]


def field_names(spec):
    """All fields that a chart's encodings refer to."""
    if isinstance(spec, dict):
        if isinstance(spec.get("field"), str):
            yield spec["field"]
        for key, value in spec.items():
            if key != "datasets":
                yield from field_names(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from field_names(value)


def rows_of(chart):
    return next(iter(chart.to_dict()["datasets"].values()))


@pytest.fixture
def candidates():
    return pd.DataFrame(
        {
            "rank": range(1, len(HOSTILE) + 1),
            "token": HOSTILE,
            "probability": [0.4, 0.2, 0.1, 0.1, 0.05, 0.05, 0.01],
            "is_true": [False] * 6 + [True],
        }
    )


def test_text_stands_in_rows_and_never_in_fields(candidates):
    chart = charts.top_k(candidates)
    assert set(field_names(chart.to_dict())) <= {"rank", "token", "probability", "label", "is_true"}
    assert [row["token"] for row in rows_of(chart)] == HOSTILE


def test_the_true_token_is_marked_without_colour_too(candidates):
    labels = [row["label"] for row in rows_of(charts.top_k(candidates))]
    assert [label.startswith("★") for label in labels] == [False] * 6 + [True]


def test_every_label_keeps_its_direction_to_itself(candidates):
    assert all("\u2068" in row["label"] for row in rows_of(charts.top_k(candidates)))


def test_repeated_tokens_stay_apart(tiny):
    rows = rows_of(charts.positions(score_positions(tiny, "the the the"), 1))
    assert len({row["label"] for row in rows}) == 3
    assert [row["chosen"] for row in rows] == [False, True, False]


def test_every_chart_is_valid_vega_lite(tiny):
    text = "the cat sat on the warm mat"
    made = [
        charts.positions(score_positions(tiny, text)),
        charts.falls(occlusion(tiny, text, 2), 2),
        charts.lens(layer_lens(tiny, text, 2)),
        charts.candidates(compare_candidates(tiny, text, 2, ["dog", "photosynthesises"])),
        charts.word_pairs(compare_sentences(tiny, text, "the dog sat")),
    ]
    for chart in made:
        assert chart.to_dict(validate=True)["datasets"]


def test_rates_and_draws_are_valid_vega_lite():
    frame = pd.DataFrame(
        {"rate": [0.1], "loss": [2.0], "loss_error": [0.1], "accuracy": [0.5],
         "accuracy_error": [0.1]}
    )  # fmt: skip
    draws = pd.DataFrame({"selected": [0, 1], "share": [0.5, 0.5], "expected": [0.4, 0.6]})
    for chart in (
        charts.loss_by_rate(frame), charts.accuracy_by_rate(frame), charts.draws(draws),
    ):  # fmt: skip
        assert chart.to_dict(validate=True)["datasets"]


def test_a_large_chart_is_whole():
    size = 90
    frame = pd.DataFrame(
        [(1, 1, q, k, 1 / size) for q in range(size) for k in range(size)],
        columns=["layer", "head", "query", "key", "weight"],
    )
    assert len(rows_of(charts.head_grid(frame))) == size**2
    rows, spec = charts.head_grid.parts(frame)
    assert len(rows) == size**2
    assert "datasets" not in spec


def test_attention_charts_are_valid_vega_lite(tiny):
    frame = pd.DataFrame({"place": [1, 2, 3], "token": ["a", "b", "a"], "weight": [0.2, 0.3, 0.5]})
    arcs = charts.arcs(frame, 2)
    assert {row["side"] for row in rows_of(arcs)} == {"left", "self", "right"}
    for chart in (arcs, charts.rollout(frame, 2), charts.sides(score_sides(tiny, "the cat sat"))):
        assert chart.to_dict(validate=True)["datasets"]


def test_the_parts_are_the_chart(candidates):
    """Rows and a specification made for other rows of the same number give the same chart."""
    whole = charts.top_k(candidates).to_dict()
    charts.top_k.parts(candidates.assign(token=list("abcdefg")))
    rows, spec = charts.top_k.parts(candidates)
    assert rows.to_dict("records") == next(iter(whole["datasets"].values()))
    assert spec == {k: v for k, v in whole.items() if k not in ("data", "datasets")}
    assert not any("data" in layer for layer in spec["layer"])
    spec["layer"].clear()
    assert charts.top_k.parts(candidates)[1]["layer"]


def test_left_and_right_have_their_colours(tiny):
    rows = rows_of(charts.falls(occlusion(tiny, "the cat sat on the mat", 2), 2))
    assert [row["side"] for row in rows] == ["left"] * 2 + ["right"] * 3


def test_a_chart_as_svg_has_its_text_as_typed():
    frame = pd.DataFrame(
        {"rank": [1], "token": ["<b>x</b> :red[y]"], "probability": [0.5], "is_true": [True]}
    )
    svg = charts.as_svg(*charts.top_k.parts(frame))
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<b>x</b> :red[y]" in "".join(root.itertext())
