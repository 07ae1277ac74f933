"""``search``: what the caller has said, been told, drawn and solved before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from server.tools.base import Policy, tool
from storage.search import LIMIT, QUERY_CHARACTERS, SearchKind

if TYPE_CHECKING:
    from server.tools.base import ToolContext


class Query(Struct, frozen=True):
    """What to look for."""

    query: Annotated[
        str,
        Meta(
            min_length=1,
            description=(
                'Words that must occur; "a phrase" in quotes, -word for what must not; '
                f"at most {QUERY_CHARACTERS} characters."
            ),
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=LIMIT, description="How many results.")] = 10
    kinds: Annotated[list[SearchKind] | None, Meta(description="Only these; all of them if not given.")] = (
        None
    )


@tool(policy=Policy.IMMEDIATE, timeout_s=10)
async def search(arguments: Query, context: ToolContext) -> dict[str, Any]:
    """Search the user's case library, earlier conversations and canvas nodes.

    Gives the best results with a snippet of each. For a node, id and version are what canvas_edit takes.
    """
    found = await context.store.search.find(
        context.principal,
        arguments.query,
        limit=arguments.limit,
        kinds=arguments.kinds or tuple(SearchKind),
        session_id=context.session_id,
        project_id=context.project_id,
    )
    hits: list[dict[str, Any]] = msgspec.to_builtins(found)
    for hit in hits:
        del hit["score"]
    return {"results": hits}
