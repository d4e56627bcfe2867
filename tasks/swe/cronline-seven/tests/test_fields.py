import pytest

from cronline.fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, FieldError


def test_star_is_everything():
    assert MONTH.parse("*") == set(range(1, 13))


def test_number():
    assert HOUR.parse("7") == {7}


def test_list_of_ranges():
    assert DAY.parse("1-3,10,20-21") == {1, 2, 3, 10, 20, 21}


@pytest.mark.parametrize(
    "text, expected",
    [("*/15", {0, 15, 30, 45}), ("10-30/10", {10, 20, 30}), ("50/4", {50, 54, 58})],
)
def test_steps(text, expected):
    assert MINUTE.parse(text) == expected


@pytest.mark.parametrize("text", ["60", "-1", "", "x", "5-", "30-10", "*/0", "*/x", "1,,2"])
def test_mistakes(text):
    with pytest.raises(FieldError, match="minute"):
        MINUTE.parse(text)


def test_weekdays_begin_on_sunday():
    assert WEEKDAY.parse("1-5") == {1, 2, 3, 4, 5}


def test_names():
    assert WEEKDAY.parse("mon-Fri") == {1, 2, 3, 4, 5}
    assert MONTH.parse("JAN,jul") == {1, 7}


def test_names_belong_to_their_field():
    with pytest.raises(FieldError, match="'mon' is not a number"):
        MONTH.parse("mon")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("7", {0}),
        ("0,7", {0}),
        ("5-7", {5, 6, 0}),
        ("fri-7", {5, 6, 0}),
        ("1-7", {0, 1, 2, 3, 4, 5, 6}),
        ("1-7/2", {1, 3, 5, 0}),
        ("0-7", {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_sunday_may_be_seven(text, expected):
    assert WEEKDAY.parse(text) == expected


def test_star_with_a_step_has_no_second_sunday():
    assert WEEKDAY.parse("*/7") == {0}
    assert WEEKDAY.parse("*/5") == {0, 5}


@pytest.mark.parametrize("text", ["8", "5-8", "7-1"])
def test_no_further_weekdays(text):
    with pytest.raises(FieldError, match="day of week"):
        WEEKDAY.parse(text)


def test_seven_is_a_hidden_value_of_weekdays_only():
    assert MONTH.parse("7") == {7}
    with pytest.raises(FieldError, match="out of range 0-23"):
        HOUR.parse("24")
