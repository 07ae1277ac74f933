"""Which model a name means, and what its tokens cost.

With an endpoint configured every name is the endpoint's; without one there are the local model and scripts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from server.llm.base import Model


class ModelSettings(Protocol):
    """The part of the settings that models need."""

    @property
    def model(self) -> str | None: ...
    @property
    def scripts(self) -> Path | None: ...
    @property
    def openai_base_url(self) -> str | None: ...
    @property
    def openai_api_key(self) -> str | None: ...
    @property
    def prices(self) -> Mapping[str, Any]: ...
    @property
    def llm_connect_timeout_ms(self) -> int: ...
    @property
    def llm_retries(self) -> int: ...


class TokenCounts(Protocol):
    """Anything that counts tokens: ``protocol.session.TokenUsage``, :class:`server.llm.base.UsageReport`."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


class Catalog:
    """The models of this process; made by :func:`open_catalog`.

    - ``default_model``: what :meth:`resolve` uses for ``None``; never empty.
    """

    default_model: str

    def resolve(self, name: str | None) -> tuple[Model, str]:
        """Find the provider for a name and the name to put into :class:`ModelRequest`.

        The second part is also the name to report (``local`` becomes ``smollm2-135m``).

        Raises:
            ModelFault: ``unknown_model``.
        """
        raise NotImplementedError

    def cost(self, model: str, usage: TokenCounts) -> float:
        """Price a call in USD; 0.0 for a model without a price."""
        raise NotImplementedError


@asynccontextmanager
async def open_catalog(settings: ModelSettings) -> AsyncIterator[Catalog]:
    """Open the providers that the settings name; closes them at the end."""
    yield Catalog()
