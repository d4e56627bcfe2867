"""A served request: meters its tokens, and keeps and records the exchange, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.core.tokens import AnswerTokens
from pytest_intercode.core.usage import UNSPENT, Usage
from pytest_intercode.gateway.apis import Target
from pytest_intercode.gateway.exchange import (
    Api,
    Exchange,
    Price,
    estimate,
    model_of,
    price_of,
    read_usage,
)
from pytest_intercode.gateway.masking import map_texts
from pytest_intercode.gateway.recording import RecordedAnswer, make_row
from pytest_intercode.gateway.session import Session
from pytest_intercode.gateway.tokens import TokenReader

__all__ = ["Call"]


@dataclass(eq=False)
class Call:
    """One request that is served.

    Attributes:
        session: the session of the request.
        target: the target of the request.
        vendor: the vendor whose server answers.
        server: the server's name, for messages.
        number: the number of the request in its session, from 1.
        body: the client's body, parsed, with the fields that its path determines.
        sent: the body that is sent to the server, parsed.
        sent_bytes: the size of that body.
        hide_usage: whether the server was asked for a usage that the client did not ask for.
        prices: the prices of models, by name.
        writes: the session's pending writes; the end of the session waits for them.
        reader: reads the tokens of the answer and removes them; None if it has none.
        charged: whether the request was metered.
    """

    session: Session
    target: Target
    vendor: str
    server: str
    number: int
    body: dict[str, Any]
    sent: Mapping[str, Any]
    sent_bytes: int
    hide_usage: bool
    prices: Mapping[str, Price]
    writes: set[asyncio.Future[None]]
    reader: TokenReader | None = None
    charged: bool = False

    @property
    def api(self) -> Api | None:
        """The API that is metered; None for requests that cost nothing."""
        return self.target.route.api

    @property
    def model(self) -> str:
        """The requested model."""
        return str(self.body.get("model", ""))

    async def settle(
        self,
        status: int,
        answer: Mapping[str, Any],
        usage: Any,
        *,
        complete: bool = True,
        length: int = 0,
    ) -> None:
        """Meter the exchange and keep it; only once, and only if it costs tokens.

        Args:
            status: the HTTP status.
            answer: the parsed answer, as far as it was received.
            usage: the usage that the server reports.
            complete: whether the answer is complete.
            length: for a streamed answer, the number of characters received.
        """
        api = self.api
        if self.charged or api is None:
            return
        self.charged = True
        model = model_of(answer) or self.model
        tokens = UNSPENT
        reported = read_usage(api, usage)
        if status == 200:
            estimated = estimate(self.sent_bytes, answer, length)
            tokens = _choose_tokens(reported, estimated, complete)
            price = price_of(self.prices, model, self.model)
            if price is not None and tokens.tokens:
                tokens = replace(tokens, cost=price.cost(tokens))

        def keep() -> None:
            exchange = Exchange(
                api=api,
                model=model,
                request=self.session.deduplicate(self.body),
                answer=answer,
                status=status,
                usage=tokens,
                complete=complete,
                call=self._keep_tokens(model, reported) if status == 200 and complete else None,
            )
            self.session.add(self.number, exchange)
            self.session.charge(exchange)

        await self._run_in_thread(keep)

    def _keep_tokens(self, model: str, usage: Usage | None) -> int | None:
        """Keep the tokens of a complete answer, if requested; return the call's number."""
        keep = self.session.keep
        if keep is None:
            return None
        if self.reader is None:
            problem = f"{self.vendor}'s API of {self.api} has none, only OpenAI's chat completions"
            return keep(model, self.sent, AnswerTokens(problem=problem))
        tokens = self.reader.tokens(usage.output_tokens if usage else None)
        self.session.check_tokens(tokens, self.server)
        return keep(model, map_texts(self.sent, self.session.mask), tokens)

    async def record(self, answer: Mapping[str, Any] | None, recorded: RecordedAnswer) -> None:
        """Write the exchange to the recording, if there is one.

        Args:
            answer: the parsed answer; None if it cannot be parsed.
            recorded: the raw answer.
        """
        recorder = self.session.recorder
        if recorder is None:
            return

        def write() -> None:
            row = make_row(
                self.target.route, self.body, self.session.token, recorded, recorder.masks
            )
            recorder.write(self.number, row, answer)

        try:
            await self._run_in_thread(write)
        except OSError as error:
            self.session.note(f"an exchange could not be recorded: {error.strerror}")
        except RecursionError:  # from the answer: nesting is limited only in requests
            self.session.note("an exchange could not be recorded: it is nested too deeply")

    async def _run_in_thread(self, work: Callable[[], None]) -> None:
        """Run work that may wait for a file or a lock on another thread; always finish it."""
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self.writes.add(future)
        future.add_done_callback(self.writes.discard)
        await asyncio.shield(future)


def _choose_tokens(reported: Usage | None, estimated: Usage, complete: bool) -> Usage:
    """Return the tokens of an answer: as reported by the server, estimated if it omits them."""
    if reported is None:
        return estimated
    if complete or reported.output_tokens >= estimated.output_tokens:
        return reported
    # It broke off after partial usage: Anthropic's begins with 1 output token.
    return replace(reported, output_tokens=estimated.output_tokens)
