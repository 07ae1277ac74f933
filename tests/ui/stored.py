"""What the server has stored of a conversation, asked over REST."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.request import urlopen


async def stored_messages(url: str, conversation_id: str) -> list[dict[str, Any]]:
    """All messages, oldest first; empty for a conversation that is not there yet."""

    def ask() -> list[dict[str, Any]]:
        with urlopen(f"{url}/api/sessions/{conversation_id}/messages?limit=200", timeout=10) as answer:
            items: list[dict[str, Any]] = json.load(answer)["data"]["items"]
            return items

    return await asyncio.to_thread(ask)


async def stored_texts(url: str, conversation_id: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in await stored_messages(url, conversation_id)]
