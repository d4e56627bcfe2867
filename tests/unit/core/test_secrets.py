"""Which names say that their value is a secret."""

from __future__ import annotations

import pytest

from pytest_intercode.core.secrets import names_secret, variable_names_secret


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apiKey", "API-KEY", "key", "api_key_2", "key1"),
        *("TOKEN", "hf_token", "client-secret", "secret"),
        *("password", "passwd", "passphrase", "credential", "credentials", "auth", "basic_auth"),
    ],
)
def test_a_secret(name: str) -> None:
    assert names_secret(name)
    assert variable_names_secret(name)


@pytest.mark.parametrize(
    "name", ["model", "max_tokens", "author", "base_url", "temperature", "bypass", "path"]
)
def test_not_a_secret(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.parametrize("name", ["tokenizer", "token_limit", "keyboard", "SECRET_KEY_BASE"])
def test_of_variables_alone(name: str) -> None:
    assert not names_secret(name)
    assert variable_names_secret(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "XAUTHORITY", "LANG", "PWD"])
def test_an_ordinary_variable(name: str) -> None:
    assert not variable_names_secret(name)
