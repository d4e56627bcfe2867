"""What is said of a connection that failed, whatever the libraries between have made of it."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from pytest_intercode.system.connections import causes, failure


class _Wrapper(Exception):
    """What a library raises."""


def _wrapped(inner: BaseException) -> BaseException:
    try:
        raise _Wrapper("Connection error.") from inner
    except _Wrapper as error:
        return error


@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"),
            "Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ValueError("half a body"), ""),
        (OSError("no number"), ""),
    ],
)
def test_the_systems_words_are_found(inner: BaseException, expected: str) -> None:
    assert failure(inner) == failure(_wrapped(inner)) == expected


def test_the_number_of_tls_is_not_one_of_the_systems() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ssl.SSLError) as raised:
            ssl.create_default_context().wrap_socket(near, server_hostname="localhost")
    assert raised.value.errno == 1
    wrapper = OSError(1, "what a library makes of it")
    wrapper.__cause__ = raised.value
    assert failure(wrapper).startswith("TLS: ")
    assert "permitted" not in failure(wrapper)


def test_errors_that_led_to_each_other_have_an_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert list(causes(one)) == [one, two]
