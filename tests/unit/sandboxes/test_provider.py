"""What the provider lends to many threads, without a sandbox."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_intercode.core.machine import ImageSource
from pytest_intercode.errors import ConfigurationError, SandboxError
from pytest_intercode.sandboxes.images import ReadyImages
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.sandboxes.settings import SandboxSettings

SOON = 10.0


def test_a_provider_with_a_hundred_at_work_in_the_background() -> None:
    """What waits for other work in the background does not keep it from beginning."""
    provider = SandboxProvider()
    all_there = threading.Barrier(101)

    def work(number: int) -> Callable[[], int]:
        def wait() -> int:
            all_there.wait(SOON)
            return number + provider.background(lambda: 1).result(SOON)

        return wait

    futures = [provider.background(work(number)) for number in range(100)]
    all_there.wait(SOON)
    assert [future.result(SOON) for future in futures] == list(range(1, 101))
    provider.close()
    with pytest.raises(SandboxError, match="the run is over"):
        provider.background(lambda: 1)


def test_what_is_shared_is_made_once_and_waits_for_nothing_else() -> None:
    provider = SandboxProvider()
    begun, go_on = threading.Event(), threading.Event()
    closed: list[str] = []

    class Shared:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)

    def slow() -> Shared:
        begun.set()
        assert go_on.wait(SOON)
        return Shared("slow")

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(provider.share, "slow", slow)
        assert begun.wait(SOON)
        second = threads.submit(provider.share, "slow", lambda: Shared("again"))
        assert provider.share("quick", lambda: Shared("quick")).name == "quick"
        go_on.set()
        assert first.result(SOON) is second.result(SOON)

        begun.clear()
        go_on.clear()
        late = threads.submit(provider.share, "late", slow)
        assert begun.wait(SOON)
        provider.close()
        assert closed == ["slow", "quick"]
        go_on.set()
        with pytest.raises(SandboxError, match="the run is over"):
            late.result(SOON)
    assert closed == ["slow", "quick", "slow"]


def test_the_rest_is_closed_where_one_cannot_be() -> None:
    provider = SandboxProvider()
    closed: list[str] = []

    class Shared:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "second":
                raise OSError("it is stuck")

    for name in ("first", "second", "third"):
        provider.share(name, lambda name=name: Shared(name))  # type: ignore[misc]
    with pytest.raises(OSError, match="it is stuck"):
        provider.close()
    assert closed == ["third", "second", "first"]


def test_a_backend_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="backend 'nosuch' is not installed; allowed are"):
        SandboxProvider(SandboxSettings("nosuch"))


def test_a_view_has_other_folders_and_is_the_same_otherwise() -> None:
    provider = SandboxProvider(SandboxSettings("bubblewrap", scratch=("/tmp/base",)))
    view = provider.with_folders((("/usr/share", "/opt/a"),), ("/opt/home",))
    assert (view.readonly, view.scratch) == ((("/usr/share", "/opt/a"),), ("/opt/home",))
    assert (provider.readonly, provider.scratch) == ((), ("/tmp/base",))
    assert view.backend is provider.backend
    assert view.share("name", object) is provider.share("name", object)

    class Environment:
        def __init__(self, provider: object) -> None:
            self.provider = provider

    assert provider.provides_for(Environment(view))
    assert view.provides_for(Environment(provider))
    assert not provider.provides_for(Environment(SandboxProvider()))
    assert not provider.provides_for(object())
    provider.close()
    with pytest.raises(SandboxError, match="the run is over"):
        view.background(lambda: 1)


class Made:
    """Images that are there."""

    def resolve(self, source: ImageSource, purpose: str = "") -> str:
        return source.name

    def pinned(self, name: str) -> str:
        return ""

    def identity(self, name: str) -> str:
        return ""

    def stop_builds(self) -> None: ...


def test_an_image_is_had_later_where_there_was_no_room_for_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ready = ReadyImages(Made(), deque(), None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(SandboxError, match="no image can be made: can't start new thread"):
            ready.name(ImageSource(image="a"))
    assert ready.name(ImageSource(image="a")) == "a"
    ready.close()
