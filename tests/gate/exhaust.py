"""A gate in a process that runs out of descriptors; says ``alive`` if it serves again afterwards."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from pathlib import Path

import uvloop

from .conftest import request, running


def take(taken: list[int]) -> bool:
    """Open one more descriptor, if there is one."""
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    return True


async def survive() -> None:
    """Run out of descriptors while clients connect, then serve again."""
    async with running() as server:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(entry.name) for entry in Path("/dev/fd").iterdir())
        waiting = [socket.socket() for _ in range(4)]
        taken: list[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
        try:
            while take(taken):
                pass
            for sock in waiting:
                sock.setblocking(False)
                sock.connect_ex(server.gate.address)
            await asyncio.sleep(0.1)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            for sock in waiting:
                sock.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with server.client() as client:
            await client.send(request("POST", "/echo", b"alive"))
            assert (await client.response())[0] == 200
    print("alive")


if __name__ == "__main__":
    new_loop = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}[sys.argv[1]]
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(survive())
