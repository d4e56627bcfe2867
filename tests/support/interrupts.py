"""Ctrl-C, for code that blocks in the process of the tests."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

_AGAIN_AFTER = 0.1  # seconds


@contextlib.contextmanager
def ctrl_c_after(ready: Callable[[], object]) -> Iterator[None]:
    """Interrupt what the block does in the main thread, once, as soon as ``ready`` has returned.

    A signal is sent until Python handles one: the first may arrive between Python's last look at
    signals and a call that blocks, which it does not wake.
    """
    handled = threading.Event()

    def interrupt_once(number: int, frame: FrameType | None) -> None:
        if not handled.is_set():
            handled.set()
            raise KeyboardInterrupt

    def send() -> None:
        ready()
        while True:
            signal.pthread_kill(main, signal.SIGINT)
            if handled.wait(_AGAIN_AFTER):
                return

    main = threading.main_thread().ident or 0
    sender = threading.Thread(target=send)
    previous_handler = signal.signal(signal.SIGINT, interrupt_once)
    try:
        sender.start()
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGINT, previous_handler)
