from datetime import datetime

import pytest

from cronline import FieldError, Schedule


def name(value):
    return value.replace(" ", "_") if isinstance(value, str) else None


def test_every_quarter_of_an_hour_at_night():
    schedule = Schedule("*/15 0-5 * * *")
    assert schedule.matches(datetime(2021, 2, 13, 3, 45))
    assert not schedule.matches(datetime(2021, 2, 13, 3, 50))
    assert not schedule.matches(datetime(2021, 2, 13, 6, 0))


def test_seconds_do_not_matter():
    assert Schedule("30 4 * * *").matches(datetime(2021, 2, 13, 4, 30, 59, 999))


def test_weekdays():
    schedule = Schedule("0 9 * * mon-fri")
    assert schedule.matches(datetime(2021, 2, 12, 9, 0))
    assert not schedule.matches(datetime(2021, 2, 13, 9, 0))


def test_sunday_is_zero():
    assert Schedule("0 9 * * 0").matches(datetime(2021, 2, 14, 9, 0))


@pytest.mark.parametrize("text", ["", "* * * *", "* * * * * *"], ids=name)
def test_five_fields(text):
    with pytest.raises(FieldError, match="not 5"):
        Schedule(text)


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("0 6 * * *", (2021, 3, 1, 5, 59), (2021, 3, 1, 6, 0)),
        ("0 6 * * *", (2021, 3, 1, 6, 0), (2021, 3, 2, 6, 0)),
        ("59 23 31 12 *", (2021, 3, 1), (2021, 12, 31, 23, 59)),
        ("*/20 * * * *", (2021, 12, 31, 23, 41, 7), (2022, 1, 1, 0, 0)),
        ("0 12 * * sun", (2021, 3, 1), (2021, 3, 7, 12, 0)),
    ],
    ids=name,
)
def test_next_after(text, after, expected):
    assert Schedule(text).next_after(datetime(*after)) == datetime(*expected)


@pytest.mark.parametrize(
    "text, days",
    [
        # both restricted: either
        ("0 0 13 * 5", [4, 11, 13, 18, 25]),
        ("0 0 1,15 * mon", [1, 7, 14, 15, 21, 28]),
        ("0 0 1-31 * 1", list(range(1, 31))),
        ("0 0 1 * 0-6", list(range(1, 31))),
        # one begins with a star: both have to hold
        ("0 0 */10 * 1", [21]),
        ("0 0 20-24 * */6", [20]),
        ("0 0 * * 2", [1, 8, 15, 22, 29]),
        ("0 0 9 * *", [9]),
        ("0 0 */29 * *", [1, 30]),
    ],
    ids=name,
)
def test_days_of_june_2021(text, days):
    schedule = Schedule(text)
    found = [day for day in range(1, 31) if schedule.matches(datetime(2021, 6, day))]
    assert found == days


def test_next_after_takes_whichever_day_comes_first():
    schedule = Schedule("30 8 13 * fri")
    assert schedule.next_after(datetime(2021, 6, 4, 8, 30)) == datetime(2021, 6, 11, 8, 30)
    assert schedule.next_after(datetime(2021, 6, 11, 8, 30)) == datetime(2021, 6, 13, 8, 30)


def test_the_other_fields_still_have_to_hold():
    schedule = Schedule("0 0 13 6 5")
    assert not schedule.matches(datetime(2021, 7, 13))
    assert not schedule.matches(datetime(2021, 7, 2))
    assert not schedule.matches(datetime(2021, 6, 13, 1, 0))


@pytest.mark.parametrize(
    "text, after, expected",
    [
        ("0 0 29 2 *", (2021, 3, 1), (2024, 2, 29)),
        ("0 0 29 2 *", (2096, 2, 29), (2104, 2, 29)),
        ("15 10 31 1,3,5 *", (2021, 5, 31, 10, 15), (2022, 1, 31, 10, 15)),
        ("0 0 1 1 *", (2021, 1, 1), (2022, 1, 1)),
        ("59 23 31 12 *", (2021, 12, 31, 23, 58, 59), (2021, 12, 31, 23, 59)),
        ("59 23 31 12 *", (2021, 12, 31, 23, 59, 59), (2022, 12, 31, 23, 59)),
    ],
    ids=name,
)
def test_next_after_far_away(text, after, expected):
    assert Schedule(text).next_after(datetime(*after)) == datetime(*expected)
