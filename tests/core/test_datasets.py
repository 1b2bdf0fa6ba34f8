from core.datasets import paragraphs, python_reference, sentences


def test_one_hundred_different_sentences():
    found = sentences()
    assert len(set(found)) == 100
    assert all(s[0].isupper() and s.endswith(".") and 5 <= len(s.split()) <= 20 for s in found)


def test_the_python_reference_is_long_and_clean():
    found = python_reference()
    assert sum(map(len, found)) > 300_000
    assert not any("\n" in p or "  " in p for p in found)
    assert any("assignment" in p for p in found)


def test_paragraphs_of_odd_text():
    assert paragraphs("") == []
    assert paragraphs(" \n\n \t\n***\n\n12 34") == []
    assert paragraphs("one two three\r\n\r\nfour five six seven") == [
        "one two three", "four five six seven",
    ]  # fmt: skip
