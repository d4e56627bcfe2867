import sys

sys.path.insert(0, "/app")


def test_area():
    from area import square

    assert [square(side) for side in (0, 1, 2.5)] == [0, 1, 6.25]
