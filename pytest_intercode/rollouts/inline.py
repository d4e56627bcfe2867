"""The inline executor, which runs each phase in the thread that asks for it, when it asks."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, TypeVar

from pytest_intercode.rollouts.executor import Handle, Observer, timed
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec

__all__ = ["InlineExecutor"]

Result = TypeVar("Result")


class InlineExecutor:
    """Runs each phase of a rollout in the thread that asks for it.

    Its rollouts accept other agents and environments than their own.

    Args:
        services: the services that rollouts use.
        observer: is notified of rollouts; the context of :meth:`Observer.surrounding` surrounds
            the phases that take long.
    """

    def __init__(self, services: Services, observer: Observer | None = None) -> None:
        self._services = services
        self._observer = observer or Observer()

    def submit(self, spec: RolloutSpec) -> Handle:
        """Accept a rollout, without running anything yet."""
        return Handle(spec, self, Rollout(spec, self._services))

    def wait(self, handle: Handle, future: Future[Result]) -> Result:
        """Run the phase that ends with this future, unless it has run."""
        if future is handle.closed:  # closing may be repeated, like closing an environment
            assert handle.rollout is not None
            with timed(handle, self._observer, "close"):
                handle.rollout.close()
        if not future.done():
            try:
                future.set_result(self._run(handle, future))
            except BaseException as error:
                if future is handle.made_agent:  # the other phases may not need it
                    future.set_exception(error)
                else:
                    handle.fail(error)
                raise
        return future.result()

    def cancel(self, handle: Handle, reason: str) -> None:
        """End a rollout from another thread."""
        assert handle.rollout is not None
        handle.rollout.cancel(reason)

    def _run(self, handle: Handle, future: Future[Any]) -> Any:
        rollout, observer = handle.rollout, self._observer
        assert rollout is not None
        if future is handle.made_agent:
            return rollout.make_agent()
        if future is handle.reset_environment:
            with timed(handle, observer, "prepare"):
                environment = rollout.make_environment()
                observer.preparing(handle, environment)
                with observer.surrounding(handle):
                    rollout.prepare(environment)
                observer.prepared(handle, environment)
            return environment
        if future is handle.recorded:
            assert handle.actors is not None
            with timed(handle, observer, "run"):
                try:
                    with observer.surrounding(handle):
                        record = rollout.run(*handle.actors)
                except BaseException as error:
                    observer.failed(handle, error)
                    raise
                observer.ended(handle, record)
            return record
        return None
