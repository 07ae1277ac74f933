"""Which name is which model, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from protocol.codes import ErrorCode
from server.llm import local
from server.llm.base import ChatMessage, ModelFault, ModelRequest, TextDelta, UsageReport
from server.llm.catalog import Catalog, open_catalog
from server.llm.local import LocalModel
from server.llm.openai import OpenAIModel
from server.llm.scripted import ScriptedModel
from server.llm.scripts import ScriptError, parse_script
from server.llm.stub import open_stub
from server.settings import ModelPrice, Settings


class Price(Struct):
    input: float
    output: float


def stub_scripts(*names: str) -> dict[str, Any]:
    table = {"turns": [{"actions": [{"text": "Hello from {last_user}"}]}]}
    return {name: parse_script(name, table, "test") for name in names}


def without_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "is_available", lambda: False)


async def ask(catalog: Catalog, name: str | None) -> str:
    model, resolved = catalog.resolve(name)
    async with model.stream(ModelRequest(resolved, (ChatMessage("user", "me"),))) as batches:
        events = [event async for batch in batches for event in batch]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_every_name_goes_to_the_endpoint() -> None:
    async with (
        open_stub(stub_scripts("first", "second")) as stub,
        open_catalog(Settings(openai_base_url=stub.base_url)) as catalog,
    ):
        assert catalog.default_model == "script/first"
        for name, sent in (
            (None, "script/first"),
            ("script/second", "script/second"),
            ("openai/second", "second"),
            ("local", "local"),
        ):
            model, resolved = catalog.resolve(name)
            assert isinstance(model, OpenAIModel)
            assert resolved == sent
        assert await ask(catalog, None) == "Hello from me"
        assert await catalog.models() == ("script/first", "script/second")


async def test_scripts_of_the_settings_win_over_the_endpoint(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[[turns]]\nactions = [ { text = 'Mine' } ]")
    async with (
        open_stub(stub_scripts("first")) as stub,
        open_catalog(Settings(openai_base_url=stub.base_url, scripts=tmp_path, model="first")) as catalog,
    ):
        assert catalog.resolve(None)[1] == "first"
        assert await ask(catalog, "script/mine") == "Mine"
        with pytest.raises(ModelFault):
            catalog.resolve("script/first")


async def test_an_endpoint_that_is_not_there_yet_is_asked_again() -> None:
    async with AsyncExitStack() as stack:
        async with open_stub(stub_scripts("first")) as stub:
            base_url, port = stub.base_url, int(stub.base_url.rsplit(":", 1)[1].removesuffix("/v1"))
        catalog = await stack.enter_async_context(
            open_catalog(Settings(openai_base_url=base_url, llm_retries=0))
        )
        assert catalog.default_model
        with pytest.raises(ModelFault) as caught:
            await ask(catalog, None)
        assert caught.value.code is ErrorCode.LLM_UNAVAILABLE
        await stack.enter_async_context(open_stub(stub_scripts("embed-1", "late"), port=port))
        assert await ask(catalog, None) == "Hello from me"
        assert catalog.default_model == "script/late"
        assert catalog.resolve(None)[1] == "script/late"


async def test_without_an_endpoint_the_local_model_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "is_available", lambda: True)
    async with open_catalog(Settings()) as catalog:
        model, resolved = catalog.resolve(None)
        assert isinstance(model, LocalModel)
        assert resolved == "smollm2-135m"
        assert isinstance(catalog.resolve("script/demo")[0], ScriptedModel)


async def test_without_anything_a_script_says_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    without_local(monkeypatch)
    async with open_catalog(Settings()) as catalog:
        assert catalog.resolve(None)[1] == catalog.default_model == "script/demo"
        for name in ("gpt-4o", "local", "script/nope"):
            with pytest.raises(ModelFault) as caught:
                catalog.resolve(name)
            assert caught.value.code is ErrorCode.UNKNOWN_MODEL


async def test_settings_that_cannot_be_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_local(monkeypatch)
    with pytest.raises(ModelFault):
        await open_catalog(Settings(model="local")).__aenter__()
    (tmp_path / "wrong.toml").write_text("turns = 1")
    with pytest.raises(ScriptError):
        await open_catalog(Settings(scripts=tmp_path)).__aenter__()


@pytest.mark.parametrize(
    ("prices", "cost"),
    [
        ({}, 0.0),
        ({"other": Price(1, 1)}, 0.0),
        ({"m": ModelPrice(input=2.5, output=10)}, 2.5 * 1000 / 1e6 + 10 * 500 / 1e6),
    ],
)
def test_a_call_is_priced_by_the_million(prices: Mapping[str, Any], cost: float) -> None:
    assert Catalog(prices).cost("m", UsageReport(1000, 500)) == pytest.approx(cost)
