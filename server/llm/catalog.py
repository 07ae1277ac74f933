"""Which model a name means, and what its tokens cost.

With an endpoint configured every name is the endpoint's (but for scripts, if a folder of them is set);
without one there are the local model and scripts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import structlog

from protocol.codes import ErrorCode
from server.llm import local
from server.llm.base import Model, ModelEvent, ModelFault, ModelRequest
from server.llm.failures import unavailable
from server.llm.openai import OpenAIModel
from server.llm.player import PREFIX
from server.llm.scripted import DEMO, ScriptedModel, demo_script
from server.llm.scripts import read_scripts

log = structlog.get_logger(__name__)

_ENDPOINT_PREFIX: Final = "openai/"
_UNKNOWN_YET: Final = "default"
_NOT_FOR_CHAT: Final = re.compile(
    r"embed|whisper|tts|dall-e|moderation|rerank|image|audio|realtime|transcri|davinci|babbage|sora",
    re.IGNORECASE,
)


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

    - ``default_model``: what :meth:`resolve` uses for ``None``; never empty. It is ``default`` while an
      endpoint for which no model is named has not said yet what it has.
    """

    def __init__(
        self,
        prices: Mapping[str, Any],
        *,
        endpoint: OpenAIModel | None = None,
        scripts: ScriptedModel | None = None,
        local_model: local.LocalModel | None = None,
        default_model: str = _UNKNOWN_YET,
    ) -> None:
        self.default_model = default_model
        self._prices = prices
        self._endpoint = endpoint
        self._scripts = scripts
        self._local = local_model

    def resolve(self, name: str | None) -> tuple[Model, str]:
        """Find the provider for a name and the name to put into :class:`ModelRequest`.

        The second part is also the name to report (``local`` becomes ``smollm2-135m``).

        Raises:
            ModelFault: ``unknown_model``.
        """
        name = name or self.default_model
        if self._scripts is not None and name.startswith(PREFIX):
            if name not in self._scripts.names:
                raise ModelFault(ErrorCode.UNKNOWN_MODEL, "there is no such script")
            return self._scripts, name
        if self._endpoint is not None:
            if name == self.default_model == _UNKNOWN_YET:
                return _FirstModel(self, self._endpoint), name
            return self._endpoint, name.removeprefix(_ENDPOINT_PREFIX)
        if self._local is not None and name in {local.LOCAL, local.REPORTED_NAME}:
            return self._local, local.REPORTED_NAME
        hint = "no endpoint is configured"
        if name == local.LOCAL:
            hint = "the extra `local` is not installed"
        raise ModelFault(ErrorCode.UNKNOWN_MODEL, f"there is no such model: {hint}")

    def cost(self, model: str, usage: TokenCounts) -> float:
        """Price a call in USD; 0.0 for a model without a price."""
        price = self._prices.get(model) or self._prices.get(f"openai/{model}")
        if price is None:
            return 0.0
        total: float = price.input * usage.input_tokens + price.output * usage.output_tokens
        return total / 1_000_000

    async def models(self) -> tuple[str, ...]:
        """All names on offer; an endpoint that does not say what it has adds none."""
        names: list[str] = []
        for provider in (self._endpoint, self._local, self._scripts):
            if provider is not None:
                try:
                    names += await provider.models()
                except ModelFault as fault:
                    log.warning("the endpoint does not list its models", code=fault.code)
        return tuple(dict.fromkeys(names))

    async def ask_default(self, endpoint: OpenAIModel) -> str:
        """Ask the endpoint what it has and take its first model for chats as the default.

        Raises:
            ModelFault: It does not say.
        """
        names = await endpoint.models()
        if not names:
            raise unavailable("the endpoint has no models, and none is named in the settings")
        self.default_model = next((name for name in names if not _NOT_FOR_CHAT.search(name)), names[0])
        log.info("default model", model=self.default_model)
        return self.default_model


class _FirstModel:
    """Stands for an endpoint's first model until it is known which one that is."""

    def __init__(self, catalog: Catalog, endpoint: OpenAIModel) -> None:
        self._catalog = catalog
        self._endpoint = endpoint

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[Sequence[ModelEvent]]]:
        """Ask, then call."""
        name = await self._catalog.ask_default(self._endpoint)
        async with self._endpoint.stream(msgspec.structs.replace(request, model=name)) as batches:
            yield batches

    async def models(self) -> tuple[str, ...]:
        """As the endpoint."""
        return await self._endpoint.models()

    async def aclose(self) -> None:
        """The endpoint belongs to the catalog."""


@asynccontextmanager
async def open_catalog(settings: ModelSettings) -> AsyncIterator[Catalog]:
    """Open the providers that the settings name; closes them at the end.

    Raises:
        ScriptError: A script is wrong.
        ModelFault: ``unknown_model``: the settings name a model that there is not.
    """
    async with AsyncExitStack() as stack:
        scripts = {} if settings.scripts is None else read_scripts([settings.scripts])
        catalog = Catalog(settings.prices)
        if settings.openai_base_url or settings.openai_api_key:
            endpoint = OpenAIModel(
                settings.openai_base_url,
                settings.openai_api_key,
                connect_timeout_ms=settings.llm_connect_timeout_ms,
                retries=settings.llm_retries,
            )
            stack.push_async_callback(endpoint.aclose)
            catalog = Catalog(
                settings.prices, endpoint=endpoint, scripts=ScriptedModel(scripts) if scripts else None
            )
            if settings.model is None:
                await _try_to_ask(catalog, endpoint, settings.llm_connect_timeout_ms / 1000)
        else:
            scripts.setdefault(DEMO, demo_script())
            local_model = local.LocalModel() if local.is_available() else None
            if local_model is not None:
                stack.push_async_callback(local_model.aclose)
            catalog = Catalog(
                settings.prices,
                scripts=ScriptedModel(scripts),
                local_model=local_model,
                default_model=f"{PREFIX}{DEMO}" if local_model is None else local.LOCAL,
            )
        if settings.model is not None:
            catalog.default_model = settings.model
            catalog.resolve(None)
        yield catalog


async def _try_to_ask(catalog: Catalog, endpoint: OpenAIModel, limit_s: float) -> None:
    """Learn the default model at the start; an endpoint that is not there yet is asked again when used."""
    try:
        async with asyncio.timeout(limit_s):
            await catalog.ask_default(endpoint)
    except (ModelFault, TimeoutError):
        log.warning("the endpoint does not say which models it has; it is asked again with the first call")
