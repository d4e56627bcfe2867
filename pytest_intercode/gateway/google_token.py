"""The token of Google Cloud: application default credentials, which google-auth reads and renews.

google-auth supports service accounts, a user's gcloud login, identities of other clouds and
Google's own machines, and it signs with RSA. The extra ``vertex`` installs it.
"""

from __future__ import annotations

import threading
from typing import Any

from pytest_intercode.gateway.logins import LoginError
from pytest_intercode.system.extras import has_extra, need

__all__ = ["GoogleToken"]

_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


class GoogleToken:
    """The token of this machine's application default credentials; safe to use from threads.

    Attributes:
        program: the program whose subscription is used; always empty, as there is none.
    """

    program = ""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._secrets: dict[str, None] = {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """All tokens that it has had so far."""
        return tuple(self._secrets)

    def headers(self, refused: str = "") -> dict[str, str]:
        """Return the headers of a request, with a valid token. Blocks.

        Args:
            refused: the header ``authorization`` that the server has refused; empty for none.

        Raises:
            LoginError: there are no credentials, or they are refused.
        """
        if not has_extra("vertex"):
            raise LoginError(need("vertex", "a model of Vertex AI"))
        import google.auth
        import google.auth.exceptions
        from google.auth.transport.requests import Request

        with self._lock:
            try:
                if self._credentials is None:
                    self._credentials, _ = google.auth.default(scopes=_SCOPES)
                credentials = self._credentials
                if not credentials.valid or f"Bearer {credentials.token}" == refused:
                    credentials.refresh(Request())
            except google.auth.exceptions.DefaultCredentialsError:
                raise LoginError(
                    "there are no application default credentials of Google Cloud: set "
                    "GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"
                ) from None
            except google.auth.exceptions.GoogleAuthError as error:
                raise LoginError(
                    "the application default credentials of Google Cloud cannot be used: "
                    f"{type(error).__name__}"
                ) from None
            self._secrets[credentials.token] = None
            return {"authorization": f"Bearer {credentials.token}"}
