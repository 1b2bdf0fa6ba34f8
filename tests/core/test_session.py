import re

import pytest

from core.errors import ModelError
from core.session import allowed, escape


@pytest.mark.parametrize(
    "name", ["../../etc", "/etc", "~", "..\\..", "/nowhere", "../", "C:\\models", "./link/x"]
)
def test_folders_outside_the_root_are_refused_whether_they_exist_or_not(
    name, tmp_path, monkeypatch
):
    monkeypatch.setenv("CLOZE_MODELS", str(tmp_path / "models"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to("/etc")
    if name == "C:\\models":
        assert allowed(name).startswith(str(tmp_path / "models"))
        return
    with pytest.raises(ModelError, match="outside this server's model folder"):
        allowed(name)


def test_folders_inside_and_hub_names_are_let_through(tmp_path, monkeypatch):
    monkeypatch.setenv("CLOZE_MODELS", str(tmp_path))
    assert allowed("./mine") == str(tmp_path / "mine")
    assert allowed("owner/name") == "owner/name"
    assert allowed("embedded") == "embedded"


@pytest.mark.parametrize("text", ["*", "_x_", "$5 and $6", ":red[y]", "`a`", "1. x", "# a", "<b>"])
def test_escape_leaves_no_bare_markup(text):
    assert re.sub(r"\\(.)", r"\1", escape(text)) == text
    assert not re.search(r"[^\w\s]", re.sub(r"\\.", "", escape(text)))
