from core.datasets import sentences


def test_one_hundred_different_sentences():
    found = sentences()
    assert len(set(found)) == 100
    assert all(s[0].isupper() and s.endswith(".") and 5 <= len(s.split()) <= 20 for s in found)
