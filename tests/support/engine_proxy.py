"""A Docker engine that can be cut off or stalled: a proxy in front of the real one's socket.

It can also be one that is reached by TCP alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

__all__ = ["EngineProxy"]

_ENGINE = "/var/run/docker.sock"


class EngineProxy:
    """Forwards connections to the engine from a thread of its own.

    Args:
        path: the socket that clients connect to; None for a port of this machine's own address.
        engine: the socket of the engine.

    Attributes:
        url: what ``DOCKER_HOST`` has to be; of a port, once the proxy was entered.
    """

    def __init__(self, path: Path | None, engine: str = _ENGINE) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._engine = engine
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._tasks: set[asyncio.Task[object]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine proxy")

    def __enter__(self) -> EngineProxy:
        self._thread.start()
        self._do(self._listen())
        self._flowing.set()
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, seconds: float) -> None:
        """Close every connection, and refuse new ones for so long."""
        self._do(self._cut(seconds))

    def stall(self, seconds: float) -> None:
        """Pass nothing on for so long."""
        self._do(self._stall(seconds))

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()  # type: ignore[arg-type]

    async def _listen(self) -> None:
        if self._path is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.url = "tcp://127.0.0.1:{1}".format(*self._server.sockets[0].getsockname())
        else:
            self._path.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _cut(self, seconds: float) -> None:
        await self._shut()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
        await asyncio.sleep(seconds)
        await self._listen()

    async def _stall(self, seconds: float) -> None:
        self._flowing.clear()
        await asyncio.sleep(seconds)
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        engine_reader, engine_writer = await asyncio.open_unix_connection(self._engine)
        self._writers |= {writer, engine_writer}
        try:
            await asyncio.gather(
                self._pass_on(reader, engine_writer), self._pass_on(engine_reader, writer)
            )
        finally:
            self._tasks.discard(task)
            for stream in (writer, engine_writer):
                self._writers.discard(stream)
                stream.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            writer.write_eof()  # the other direction may go on: an attached container still answers
