"""The servers that requests go to: their addresses, keys, and error formats. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["VENDORS", "Vendor", "VendorName", "Words"]

VendorName: TypeAlias = Literal["openai", "anthropic", "google", "azure", "bedrock", "vertex"]
Words: TypeAlias = Literal["openai", "anthropic", "google", "amazon"]
"""The format of an error."""


@dataclass(frozen=True)
class Vendor:
    """The API of one vendor.

    Attributes:
        address_variable: the environment variable of the address.
        key_variables: the environment variables of the key; the first one that is set counts.
        address: the vendor's own address; empty if each customer has a different one.
        header: the header with the key; in ``authorization`` it is a bearer token.
        words: the format of its errors.
        models_path: the path of its list of models, which costs nothing.
        example: an example of an address, for messages.
    """

    address_variable: str
    key_variables: tuple[str, ...]
    address: str
    header: str
    words: Words
    models_path: str = "/v1/models"
    example: str = ""


VENDORS: Mapping[str, Vendor] = {
    "openai": Vendor(
        "OPENAI_BASE_URL",
        ("OPENAI_API_KEY",),
        "https://api.openai.com/v1",
        header="authorization",
        words="openai",
    ),
    "anthropic": Vendor(
        "ANTHROPIC_BASE_URL",
        ("ANTHROPIC_API_KEY",),
        "https://api.anthropic.com",
        header="x-api-key",
        words="anthropic",
    ),
    "google": Vendor(
        "GOOGLE_GEMINI_BASE_URL",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "https://generativelanguage.googleapis.com",
        header="x-goog-api-key",
        words="google",
        models_path="/v1beta/models",
    ),
    "azure": Vendor(
        "AZURE_OPENAI_ENDPOINT",
        ("AZURE_OPENAI_API_KEY",),
        "",
        header="api-key",
        words="openai",
        models_path="/openai/v1/models",
        example="https://NAME.openai.azure.com",
    ),
    # Without its own key, requests are signed; the default address is that of the region.
    "bedrock": Vendor(
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        ("AWS_BEARER_TOKEN_BEDROCK",),
        "",
        header="authorization",
        words="amazon",
        models_path="/async-invoke",
        example="https://bedrock-runtime.us-east-1.amazonaws.com",
    ),
    # It uses a token of Google Cloud instead of a key.
    "vertex": Vendor(
        "GOOGLE_VERTEX_BASE_URL",
        (),
        "",
        header="authorization",
        words="google",
        models_path="/v1beta1/publishers/google/models",
        example="https://aiplatform.googleapis.com",
    ),
}
"""The vendors, by their names in the settings."""
