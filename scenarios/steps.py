"""What each step does to the world. One function a verb; :func:`perform` chooses.

A step that does not go as written raises :class:`~scenarios.world.StepFailed`, whose text is the diff.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, assert_never

import anyio
import msgspec

from scenarios import format as fmt
from scenarios.canvas import merged
from scenarios.checks import SelectorError, check, is_of
from scenarios.client import Client
from scenarios.findings import Deadline, capture, fail_frame, fail_if, frame_of, keep, must_match
from scenarios.matchers import MatcherError, compare, show
from scenarios.values import PathError, UnknownVariable
from scenarios.wire import Closed, Refused, Wire
from scenarios.world import Answer, StepFailed, World

_NO_REQUEST_ID = frozenset({"ping", "ack"})
_POLL_S = 0.05


async def perform(step: fmt.Step, world: World) -> None:
    """Do one step.

    Raises:
        StepFailed: It did not go as written, or a client saw something that must never be.
    """
    world.publish()
    try:
        await _dispatch(step, world)
    except (UnknownVariable, PathError, MatcherError, SelectorError) as error:
        raise StepFailed(str(error)) from None
    except (ConnectionError, OSError) as error:
        raise StepFailed(f"connection: {error}") from None
    finally:
        world.publish()
    if faults := [f"{client.name}: {fault}" for client in world.clients.values() for fault in client.faults]:
        raise StepFailed("\n".join(faults))


async def _dispatch(step: fmt.Step, world: World) -> None:
    match step:
        case fmt.Connect():
            await _connect(step, world)
        case fmt.Send():
            await _send(step, world)
        case fmt.SendRaw():
            await _send_raw(step, world)
        case fmt.Expect():
            await _expect(step, world)
        case fmt.ExpectSequence():
            await _expect_sequence(step, world)
        case fmt.Collect():
            await _collect(step, world)
        case fmt.ReadCanvas():
            await _read_canvas(step, world)
        case fmt.ExpectNothing():
            await _expect_nothing(step, world)
        case fmt.ExpectClose():
            await _expect_close(step, world)
        case (
            fmt.Close()
            | fmt.Drop()
            | fmt.HalfOpen()
            | fmt.StopReading()
            | fmt.ResumeReading()
            | fmt.ReadRate()
        ):
            await _change_connection(step, world)
        case fmt.Mark(client=name, mark=mark):
            world.marks[mark] = world.position(name)
        case fmt.Wait(wait=milliseconds):
            await anyio.sleep(world.variables.number(milliseconds) / 1000)
        case fmt.Http() | fmt.AwaitHttp():
            await _http(step, world)
        case fmt.Restart() | fmt.BeginRestart() | fmt.AwaitRestart():
            await _restart(step, world)
        case fmt.Assert():
            _assert(step, world)
        case fmt.Set(set=values):
            for name, value in values.items():
                world.variables[name] = world.variables.expand(value)
        case _:
            assert_never(step)


# -- connections -------------------------------------------------------------------------------


async def _connect(step: fmt.Connect, world: World) -> None:
    client = world.client(step.client)
    if client.is_open:
        raise StepFailed(f"client {client.name} is still connected")
    variables = world.variables
    path, query = variables.expand(step.connect), variables.expand(step.query)
    asked = None
    if step.resume is not None:
        asked = world.position(step.resume)
        query = {**query, "epoch": asked.epoch, "last_seq": asked.seq}
    opening = partial(
        Wire.open,
        world.socket_url(path, query),
        headers={**world.server.headers(), **variables.expand(step.headers)},
        subprotocol=step.subprotocol or None,
        receive_buffer=step.receive_buffer,
    )
    with Deadline(world, step.timeout_ms, "the connect was not answered", client):
        try:
            wire = await opening()
        except Refused as refusal:
            _check_http_refusal(step, refusal, world)
            return
        client.attach(wire, world.tasks, path, asked)
        if step.refused is not None:
            await _expect_refusal(step.refused, client, world)
        elif not step.later:
            received = frame_of(await client.next(), "connected")
            must_match({"type": "connected", **variables.expand(step.connected)}, received.frame, client)
            capture(step.capture, received.frame, world)


def _check_http_refusal(step: fmt.Connect, refusal: Refused, world: World) -> None:
    wanted = None if step.refused is None else step.refused.http
    if wanted is None:
        raise StepFailed(f"the connect was answered with {refusal}")
    fail_if(compare(world.variables.expand(wanted), refusal.status, "HTTP status"), None)


async def _expect_refusal(refusal: fmt.Refusal, client: Client, world: World) -> None:
    if refusal.http is not None:
        raise StepFailed(f"the connect was accepted, but HTTP {show(refusal.http)} was expected")
    error = None
    while not isinstance(received := await client.next(), Closed):
        if received.frame["type"] != "error" or error is not None:
            raise StepFailed(f"a refused connection got {show(received.frame)}")
        error = received.frame
    if refusal.error is not None:
        must_match({"type": "error", **world.variables.expand(refusal.error)}, error or {}, client)
    if refusal.close is not None:
        fail_if(compare(world.variables.expand(refusal.close), received.code, "close code"), client)


async def _change_connection(
    step: fmt.Close | fmt.Drop | fmt.HalfOpen | fmt.StopReading | fmt.ResumeReading | fmt.ReadRate,
    world: World,
) -> None:
    client = world.client(step.client)
    match step:
        case fmt.Close(close=code, timeout_ms=timeout_ms):
            with Deadline(world, timeout_ms, "the close was not answered", client):
                await client.wire.send_close(code)
                await client.wait_closed()
        case fmt.Drop(drop=how):
            await client.drop(reset=how == "reset")
        case fmt.HalfOpen() | fmt.StopReading():
            client.stop_reading()
        case fmt.ResumeReading():
            client.resume_reading()
        case fmt.ReadRate(read_rate=rate):
            client.read_at(world.variables.number(rate))
        case _:
            assert_never(step)


# -- frames ------------------------------------------------------------------------------------


async def _send(step: fmt.Send, world: World) -> None:
    wire, variables = world.client(step.client).wire, world.variables
    ids = []
    for at in range(variables.number(step.times)):
        variables["i"] = at
        frame: dict[str, Any] = variables.expand(step.send)
        if "request_id" not in frame and frame.get("type") not in _NO_REQUEST_ID:
            frame["request_id"] = world.request_id()
        ids.append(frame.get("request_id"))
        try:
            await wire.send(msgspec.json.encode(frame), text=True)
        except ConnectionError:
            if not step.may_be_late:
                raise
        if pause := variables.number(step.every_ms):
            await anyio.sleep(pause / 1000)
    if step.as_ is not None:
        variables[step.as_] = ids[0] if len(ids) == 1 else ids


async def _send_raw(step: fmt.SendRaw, world: World) -> None:
    wire, variables = world.client(step.client).wire, world.variables
    for at in range(variables.number(step.times)):
        variables["i"] = at
        match step.send_raw:
            case str(text):
                await wire.send(str(variables.expand(text)).encode(), text=True)
            case fmt.Filler() as filler:
                await wire.send(_fill(filler, world), text=not filler.binary, fragments=filler.fragments)
        if pause := variables.number(step.every_ms):
            await anyio.sleep(pause / 1000)


def _fill(filler: fmt.Filler, world: World) -> bytes:
    def text(value: str) -> bytes:
        return str(world.variables.expand(value)).encode()

    middle = text(filler.fill) * world.variables.number(filler.fill_times)
    return text(filler.text) + bytes.fromhex(filler.hex) + text(filler.before) + middle + text(filler.after)


async def _expect(step: fmt.Expect, world: World) -> None:
    client, wanted = world.client(step.client), world.variables.expand(step.expect)
    with Deadline(world, step.timeout_ms, f"no {show(wanted)} came", client):
        while True:
            received = frame_of(await client.next(), show(wanted), client)
            mismatches = compare(wanted, received.frame)
            keep(step.into, received, world)
            if not mismatches:
                break
            if not is_of(received.frame, step.skip):
                fail_frame(wanted, received.frame, mismatches, client)
    capture(step.capture, received.frame, world)


async def _expect_sequence(step: fmt.ExpectSequence, world: World) -> None:
    client, at, seen = world.client(step.client), 0, 0
    items = [_sequence_item(item) for item in world.variables.expand(step.expect_sequence)]
    if items[-1][1] != "1":
        raise StepFailed("the last item of a sequence cannot repeat: nothing would tell its end")
    with Deadline(world, step.timeout_ms, lambda: f"no {show(items[at][0])} (item {at + 1}) came", client):
        while at < len(items):
            received = frame_of(await client.next(), show(items[at][0]), client)
            if is_of(received.frame, step.skip):
                continue
            keep(step.into, received, world)
            while mismatches := compare(items[at][0], received.frame):
                if items[at][1] in "?*" or (items[at][1] == "+" and seen):
                    at, seen = at + 1, 0
                    continue
                fail_frame(items[at][0], received.frame, mismatches, client, f" (item {at + 1})")
            seen += 1
            if items[at][1] in "1?":
                at, seen = at + 1, 0


def _sequence_item(item: dict[str, Any]) -> tuple[dict[str, Any], str]:
    repeat = item.pop("repeat", "1")
    if repeat not in ("1", "?", "*", "+"):
        raise StepFailed(f"repeat = {repeat!r} is not one of ? * +")
    return item, repeat


async def _collect(step: fmt.Collect, world: World) -> None:
    client, until = world.client(step.client), world.variables.expand(step.until)
    left = world.variables.number(step.times)
    kept = world.lists.setdefault(step.collect, [])
    with Deadline(world, step.timeout_ms, lambda: f"{left} more of {show(until)} did not come", client):
        while left > 0:
            received = frame_of(await client.next(), show(until), client)
            kept.append(received)
            left -= not compare(until, received.frame)
            if not left:
                capture(step.capture, received.frame, world)


async def _read_canvas(step: fmt.ReadCanvas, world: World) -> None:
    client, cursor = world.client(step.client), None
    pages: list[dict[str, Any]] = []
    with Deadline(world, step.timeout_ms, lambda: f"page {len(pages) + 1} did not come", client):
        while cursor is not None or not pages:
            request_id = world.request_id()
            asked = {"type": "canvas_get", "domain": "canvas", "request_id": request_id, "cursor": cursor}
            await client.wire.send(msgspec.json.encode(asked), text=True)
            page = frame_of(await client.next(), "canvas_state", client).frame
            must_match({"type": "canvas_state", "request_id": request_id}, page, client)
            pages.append(page)
            cursor = page["next_cursor"]
    whole, faults = merged(pages)
    if all(page["canvas_version"] == whole["canvas_version"] for page in pages):
        faults += client.canvas.read(whole)
    if faults:
        raise StepFailed("\n".join(faults))
    mismatches = compare(world.variables.expand(step.read_canvas), whole)
    if step.pages is not None:
        mismatches += compare(world.variables.expand(step.pages), len(pages), "pages")
    fail_if(mismatches, client)
    capture(step.capture, whole, world)


async def _expect_nothing(step: fmt.ExpectNothing, world: World) -> None:
    client = world.client(step.client)
    with anyio.move_on_after(world.variables.number(step.expect_nothing) / 1000):
        while True:
            received = await client.next()
            if isinstance(received, Closed):
                raise StepFailed(f"the connection was closed ({received.code} {received.reason})")
            if not step.of or is_of(received.frame, step.of):
                raise StepFailed(f"nothing was due, but this came: {show(received.frame)}")


async def _expect_close(step: fmt.ExpectClose, world: World) -> None:
    client = world.client(step.client)
    with Deadline(world, step.timeout_ms, "the connection stayed open", client):
        while not isinstance(received := await client.next(), Closed):
            keep(step.into, received, world)
            if not is_of(received.frame, step.skip):
                raise StepFailed(f"a close was due, but this came: {show(received.frame)}")
    mismatches = compare(world.variables.expand(step.expect_close), received.code, "close code")
    if step.reason is not None:
        mismatches += compare(world.variables.expand(step.reason), received.reason, "close reason")
    fail_if(mismatches, client)


# -- HTTP, restarts, assertions ----------------------------------------------------------------


async def _http(step: fmt.Http | fmt.AwaitHttp, world: World) -> None:
    variables = world.variables
    if isinstance(step, fmt.AwaitHttp):
        with Deadline(world, step.timeout_ms, f"{step.await_http} was not answered"):
            _check_answer(step, await world.join(step.await_http), world)
        return
    request = msgspec.convert(variables.expand(msgspec.to_builtins(step.http)), fmt.Request)
    if step.background is not None:
        world.start(step.background, partial(world.call, request))
        return
    ends = time.monotonic() + world.seconds(variables.number(step.timeout_ms))
    while True:
        with Deadline(world, step.timeout_ms, f"{request.method} {request.path} was not answered"):
            answer = await world.call(request)
        try:
            _check_answer(step, answer, world)
        except StepFailed:
            if not step.poll or time.monotonic() > ends:
                raise
            await anyio.sleep(_POLL_S)
        else:
            return


def _check_answer(step: fmt.Http | fmt.AwaitHttp, answer: Answer, world: World) -> None:
    mismatches = compare(world.variables.expand(step.status), answer.status, "status")
    if step.body is not None:
        mismatches += compare(world.variables.expand(step.body), answer.body, "body")
    if mismatches:
        raise StepFailed(
            "\n".join([*map(str, mismatches), f"the answer: {answer.status} {show(answer.body, 1500)}"])
        )
    capture(step.capture, answer.body, world)


async def _restart(step: fmt.Restart | fmt.BeginRestart | fmt.AwaitRestart, world: World) -> None:
    match step:
        case fmt.BeginRestart(begin_restart=how):
            world.start("restart", partial(world.restart, how))
        case fmt.Restart(restart=how, timeout_ms=timeout_ms):
            with Deadline(world, timeout_ms, "the restart did not end"):
                await world.restart(how)
        case fmt.AwaitRestart(timeout_ms=timeout_ms):
            with Deadline(world, timeout_ms, "the restart did not end"):
                await world.join("restart")
        case _:
            assert_never(step)


def _assert(step: fmt.Assert, world: World) -> None:
    expanded = msgspec.convert(world.variables.expand(msgspec.to_builtins(step)), fmt.Assert)
    if faults := check(expanded, world.lists):
        raise StepFailed("\n".join(faults))
