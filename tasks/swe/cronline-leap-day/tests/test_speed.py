import itertools
import random
import signal
from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

from cronline import NeverDue, Schedule


@contextmanager
def within(seconds):
    """Fail what takes more than so many seconds of processor time."""

    def late(number, frame):
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_a_page_of_rare_jobs_is_quick():
    texts = ["0 0 29 2 *", "30 12 31 12 *", "5 4 1 1 *", "0 6 24 12 *"] * 25
    with within(1.5):
        for text in texts:
            Schedule(text).next_after(datetime(2021, 3, 1, 7, 9))


def test_a_busy_schedule_stays_quick():
    schedule, moment = Schedule("* * * * *"), datetime(2021, 12, 31, 23, 0)
    with within(1.5):
        for step in range(1, 5001):
            assert schedule.next_after(moment + timedelta(minutes=step - 1)) == (
                moment + timedelta(minutes=step)
            )


def test_what_never_comes_is_found_out_quickly():
    with within(1.5):
        for text in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] * 3:
            with pytest.raises(NeverDue, match="is never due"):
                Schedule(text).next_after(datetime(2021, 3, 1))


def test_an_impossible_date_with_a_weekday_comes_by_the_weekday():
    with within(1.5):
        found = Schedule("0 0 31 2 mon").next_after(datetime(2021, 3, 1))
    assert found == datetime(2022, 2, 7)


def by_minutes(schedule, moment):
    minute = moment.replace(second=0, microsecond=0)
    for _ in range(60 * 24 * 12):
        minute += timedelta(minutes=1)
        if schedule.matches(minute):
            return minute
    return None


def test_the_same_as_trying_every_minute():
    chance = random.Random(29)
    minutes = ["*", "0", "*/7", "5,35", "58-59"]
    hours = ["*", "0", "23", "*/5", "9-17"]
    days = ["*", "1", "28-31", "*/9", "15"]
    months = ["*", "2", "1,3", "12"]
    weekdays = ["*", "0", "mon-fri", "*/3"]
    every = list(itertools.product(minutes, hours, days, months, weekdays))
    compared = 0
    for words in chance.sample(every, 60):
        schedule = Schedule(" ".join(words))
        start = datetime(2023, 12, 20) + timedelta(seconds=chance.randrange(75 * 86400))
        expected = by_minutes(schedule, start)
        if expected is not None:
            assert schedule.next_after(start) == expected, (words, start)
            compared += 1
    assert compared > 20
