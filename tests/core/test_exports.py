import csv
import io

import pandas as pd

from core.exports import safe_csv


def test_formulas_become_text_and_numbers_stay_numbers():
    frame = pd.DataFrame(
        {"token": ["=SUM(A1)", "+1", "-x", "@cmd", "\tx", "a,b", 'q"q', "אב"], "loss": [-0.5] * 8}
    )
    rows = list(csv.DictReader(io.StringIO(safe_csv(frame))))
    tokens = [row["token"] for row in rows]
    assert tokens == ["'=SUM(A1)", "'+1", "'-x", "'@cmd", "'\tx", "a,b", 'q"q', "אב"]
    assert [float(row["loss"]) for row in rows] == [-0.5] * 8
