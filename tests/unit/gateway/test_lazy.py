"""The gateway of users and judges: whether a model is within reach, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.lazy import LazyGateway
from pytest_intercode.gateway.settings import GatewaySettings

KEY = {"openai": "sk-0123456789abcdef"}
OWN_SERVER = {"openai": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("settings", "replayed", "problem"),
    [
        (GatewaySettings(keys=KEY), False, ""),
        (GatewaySettings(upstreams=OWN_SERVER), False, ""),
        (GatewaySettings(replay=Path("recorded"), offline=True), False, ""),
        (GatewaySettings(), True, ""),
        (GatewaySettings(offline=True), True, ""),
        (GatewaySettings(), False, "x: no model can be reached: set OPENAI_API_KEY, or"),
        (GatewaySettings(keys={"anthropic": "sk-1"}), False, "x: no model can be reached"),
        (
            GatewaySettings(keys=KEY, offline=True),
            False,
            "x: --intercode-record=none does not allow",
        ),
    ],
)
def test_who_may_ask(settings: GatewaySettings, replayed: bool, problem: str) -> None:
    gateway = LazyGateway(settings)
    if problem:
        with pytest.raises(ConfigurationError, match=f"^{problem}"):
            gateway.check("x", replayed=replayed)
    else:
        gateway.check("x", replayed=replayed)


def test_it_is_opened_once_and_not_limited_to_the_models_of_agents() -> None:
    lazy = LazyGateway(GatewaySettings(keys=KEY, models=("for-agents",)))
    gateway = lazy.open()
    assert lazy.open() is gateway
    assert gateway.settings.models == ()
    lazy.close()
    lazy.close()
    assert lazy.open() is not gateway
    lazy.close()
