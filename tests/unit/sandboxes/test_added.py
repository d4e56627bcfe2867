"""What stands for a backend of somebody else's, whatever that has, raises and returns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from pytest_intercode.core.machine import ImageSource
from pytest_intercode.errors import ConfigurationError, EngineUnavailable, ImageError, SandboxError
from pytest_intercode.sandboxes.added import AddedBackend
from pytest_intercode.sandboxes.backend import BackendEvents
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.settings import SandboxSettings
from tests.support.interrupts import ctrl_c_after

MODULE = """\
class Images:
    resolve = pinned = identity = stop_builds = lambda *_: ""

class Mine:
    name, takes, builds_images, shares_network, starters = "mine", frozenset(), False, False, 1
    images = Images()
    requested = problem = check = start = launch = close = lambda *_: ""
    def __init__(self, settings): pass
"""
Made = Callable[[str], AddedBackend]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return what makes a backend of a module that ends with some lines."""

    def make(content: str) -> AddedBackend:
        (tmp_path / "its_backend.py").write_text(f"{MODULE}{content}\n")
        return AddedBackend(EntryPoint("mine", "its_backend:Mine", ""), SandboxSettings())

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "its_backend", raising=False)
    return make


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 / 0", r"cannot be loaded: ZeroDivisionError: division by zero \(.*/its_backend.py:9\)"),
        ("import not_there", r"cannot be loaded: ModuleNotFoundError: .*/its_backend.py:9\)"),
        ("del Mine", r"cannot be loaded: AttributeError: module 'its_backend' has no .*'Mine'$"),
        ("Mine = lambda: 1", r"the class raised TypeError: .* \(.*/its_backend.py:9\)"),
        ("del Mine.launch, Mine.name", "has no name, launch"),
        ("Mine.name = 'other'", "its name is 'other', but its entry point calls it 'mine'"),
        ("Mine.takes = 'rootfs'", "takes: a set of names is needed, found 'rootfs'"),
    ],
)
def test_what_cannot_be_made(made: Made, content: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^the sandbox backend 'mine' \(.*{message}"):
        made(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Mine.problem = lambda self: 'the moon is wrong'", "^mine: the moon is wrong$"),
        ("Mine.start = lambda self: None", r"start\(\) raised TypeError: .* \(.*:9\)"),
        ("Mine.starters = 0", "starters: a whole number from 1 on is needed, found 0"),
        ("del Mine.images", "has no images"),
        ("Mine.images = print", "images has no resolve, pinned, identity, stop_builds"),
    ],
)
def test_what_does_not_start(made: Made, content: str, message: str) -> None:
    with pytest.raises(EngineUnavailable, match=message):
        made(content).start(BackendEvents())


def _launch(backend: AddedBackend) -> object:
    return backend.launch(SandboxSpec("image"))


@pytest.mark.parametrize(
    ("content", "call", "error", "message"),
    [
        ("Mine.launch = lambda *_: 1 / 0", _launch, SandboxError, r"launch\(\) raised Zero.*:9\)"),
        ("", _launch, SandboxError, r"a Sandbox is needed, found '', which has no run, admin"),
        (
            "Images.resolve = lambda *_: 1 / 0",
            lambda backend: backend.images.resolve(ImageSource(image="a")),
            ImageError,
            r"images.resolve\(\) raised ZeroDivisionError: .*:9\)",
        ),
        (
            "Mine.requested = lambda *_: 1 / 0",
            lambda backend: backend.requested(),
            ConfigurationError,
            r"requested\(\) raised ZeroDivisionError: .*:9\)",
        ),
        (
            "Mine.describe = lambda *_: 1 / 0",
            lambda backend: backend.describe(""),
            ConfigurationError,
            r"describe\(\) raised ZeroDivisionError: .*:9\)",
        ),
    ],
)
def test_what_it_fails_at(
    made: Made, content: str, call: Callable[[Any], object], error: type[Exception], message: str
) -> None:
    backend = made(content)
    backend.start(BackendEvents())
    with pytest.raises(
        error, match=rf"^the sandbox backend 'mine' \(its_backend:Mine\): .*{message}"
    ):
        call(backend)


LATE = """\
import threading
class Late:
    run = admin = unpack = None
    def close(self): closed.set()
begun, may_return, closed = threading.Event(), threading.Event(), threading.Event()
def launch(self, spec):
    begun.set()
    may_return.wait(30)
    return Late()
Mine.launch = launch
"""


def test_what_is_launched_after_an_interrupt_is_closed(made: Made) -> None:
    backend = made(LATE)
    backend.start(BackendEvents())
    module = sys.modules["its_backend"]
    with pytest.raises(KeyboardInterrupt), ctrl_c_after(module.begun.wait):
        _launch(backend)
    assert not module.closed.is_set()
    module.may_return.set()
    assert module.closed.wait(30)


def test_what_it_is_called(made: Made) -> None:
    assert str(made("")) == "mine"
    assert not hasattr(made(""), "platform")
