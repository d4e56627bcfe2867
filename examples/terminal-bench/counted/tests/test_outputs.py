from pathlib import Path


def test_the_number():
    assert Path("/app/count.txt").read_text().split() == ["3"]
