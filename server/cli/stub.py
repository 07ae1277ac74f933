"""``turnwire stub-llm``: an OpenAI-compatible endpoint that plays scripts."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["stub_llm"]


def stub_llm(
    script: Annotated[
        list[Path],
        typer.Option(
            "--script", help="A script, a scenario, or a folder of them; may be repeated.", exists=True
        ),
    ],
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any.")] = 8081,
) -> None:
    """Serve scripted models over the OpenAI wire format, until it is stopped."""
    import anyio

    anyio.run(_serve, script, host, port)


async def _serve(paths: list[Path], host: str, port: int) -> None:
    import signal

    import anyio

    from server.llm.stub import serve_stub

    def announce(base_url: str) -> None:
        typer.echo(f"Scripted models under /v1 are ready: {base_url.removesuffix('/v1')}")

    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_stub, paths, host, port, announce, name="stub-llm")
            async for _signal in signals:
                break
            tasks.cancel_scope.cancel()
