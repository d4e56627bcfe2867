"""Headless Chromium, driven by its DevTools protocol over a pipe: no driver, no library, no port.

with Browser() as browser:
    browser.open(path)
    browser.evaluate("document.title")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

__all__ = ["Browser", "chromium"]

_PATIENCE = 120.0

# The browser reads from descriptor 3 and writes to 4, wherever ours are.
_START = """\
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(reads, 3)
os.dup2(writes, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40, "End": 35, "Home": 36}


def chromium() -> str | None:
    """Return the program, or None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


class Browser:
    """One browser with one page.

    Attributes:
        problems: what the page's console was told of as a warning or an error, and what was thrown.
    """

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        program = chromium()
        assert program is not None
        self.problems: list[str] = []
        self._asked: dict[str, str] = {}
        self._number = 0
        self._address = ""
        self._received = b""
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, to_write = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-c", _START, str(to_read[0]), str(to_write[1]), program),
                "--headless",
                "--no-sandbox",  # as root, and in containers, Chromium's own does not start
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--hide-scrollbars",
                f"--window-size={width},{height}",
                f"--user-data-dir={self._folder.name}",
                "--remote-debugging-pipe",
            ],
            pass_fds=(to_read[0], to_write[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "TMPDIR": self._folder.name},  # or it leaves its own behind
        )
        os.close(to_read[0])
        os.close(to_write[1])
        self._to: IO[bytes] = os.fdopen(to_read[1], "wb", buffering=0)
        self._from = to_write[0]
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and whatever it started."""
        self._to.close()
        os.close(self._from)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._folder.cleanup()

    # -- the protocol

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._from], [], [], max(0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser is gone"
            self._received += data
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            address = params["request"]["url"]
            if address.partition("#")[0] != self._address:
                self._asked[params["requestId"]] = address
        elif method == "Network.loadingFailed" and params.get("blockedReason") == "csp":
            self._asked.pop(params["requestId"], None)  # refused before it was sent
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error"):
            self.problems.append(json.dumps(params["args"]))
        elif method == "Page.javascriptDialogOpening":
            self.problems.append(f"a dialog: {params['message']}")

    # -- what tests do

    @property
    def requests(self) -> list[str]:
        """The addresses that the page asked for, its own left out."""
        self.evaluate("1")  # what happened until now is told first
        return [url for url in self._asked.values() if url != "about:blank"]

    def forget(self) -> None:
        """Forget problems and requests."""
        self.evaluate("1")
        self.problems.clear()
        self._asked.clear()

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Open a page, a file or an address, and wait until its script has started it."""
        self._address = page.absolute().as_uri() if isinstance(page, Path) else page
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=f"{self._address}{fragment}")
        self.wait(f"location.href.startsWith({json.dumps(self._address)})")
        # A page that has just begun has no element yet.
        self.wait("document.documentElement?.dataset.ready === 'true'")

    def evaluate(self, expression: str) -> Any:
        """Return what an expression of JavaScript comes to, as builtins."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _PATIENCE
        while not self.evaluate(f"Boolean({condition})"):
            assert time.monotonic() < deadline, f"never came true: {condition}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, by their names in JavaScript."""
        for key in keys:
            code = _KEYS.get(key) or ord(key.upper())
            event = {"key": key, "windowsVirtualKeyCode": code}
            text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        element = f"document.querySelector({json.dumps(selector)})"
        # A page may replace elements once it hears of the scrolling, in the next frame. If that is
        # between the two events of a click, it is one on what both elements are in.
        self.evaluate(
            f"(async () => {{ {element}.scrollIntoView({{block: 'center'}});"
            "for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame); })()"
        )
        place = self.evaluate(
            f"(() => {{ const r = {element}.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                **{"type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1},
            )

    def screenshot(self, target: Path, *, whole: bool = False) -> None:
        """Write a picture of the page."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        target.write_bytes(base64.b64decode(shot["data"]))
