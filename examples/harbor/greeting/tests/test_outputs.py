from pathlib import Path


def test_the_greeting_is_there():
    assert Path("/app/greeting.txt").read_text() == "Hello, world!\n"
