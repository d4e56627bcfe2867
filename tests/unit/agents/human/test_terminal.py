"""What becomes of Ctrl-C while the terminal is lent to a human."""

from __future__ import annotations

import signal

import pytest

from pytest_intercode.plugin.terminal import _single_interrupt_stops_action


def test_the_second_interrupt_of_two_at_once_ends_the_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT)
    with _single_interrupt_stops_action(10.0):
        signal.raise_signal(signal.SIGINT)
        assert "ends by itself after 10 s" in capfd.readouterr().out
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
