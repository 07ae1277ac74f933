"""Who may call: tokens, origins, hosts, and what the settings must say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.access import LOCAL, Access, Principal, TokenFile
from server.settings import Settings, SettingsError


def _access(tmp_path: Path, text: str, **settings: object) -> Access:
    path = tmp_path / "tokens"
    path.write_text(text)
    return Access.from_settings(Settings(tokens_file=path, **settings))  # type: ignore[arg-type]


def _principal(access: Access, authorization: str | None) -> str:
    headers = Headers({} if authorization is None else {"authorization": authorization})
    return access.authenticate(headers, {}).name


def test_without_authentication_everybody_is_local() -> None:
    assert Access.from_settings(Settings()).authenticate(Headers({}), {}) == LOCAL


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_without_authentication_only_loopback_is_listened_on(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tokens_file"):
        Access.from_settings(Settings(host=host))
    assert _access(tmp_path, "t p", host=host).authenticating


def test_a_token_names_its_principal(tmp_path: Path) -> None:
    access = _access(tmp_path, "# who\n\n  s3cret   alice  # the first\n#x bob\nt#1 carol\n")
    assert _principal(access, "Bearer s3cret") == "alice"
    assert _principal(access, "bearer  t#1 ") == "carol"
    for wrong in (
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer S3CRET",
        "Basic s3cret",
        "s3cret",
        "Bearer #x",
        "Bearer é",
    ):
        with pytest.raises(Fault) as refusal:
            _principal(access, wrong)
        assert refusal.value.code is ErrorCode.UNAUTHENTICATED


@pytest.mark.parametrize("text", ["only-a-token\n", "a b c\n"])
def test_a_malformed_line_stops_the_start_without_showing_it(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="line 1") as refusal:
        _access(tmp_path, text)
    assert "only-a-token" not in str(refusal.value)


def test_a_missing_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        Access.from_settings(Settings(tokens_file=tmp_path / "none"))


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.access._RELOAD_S", 0.0)
    path = tmp_path / "tokens"
    path.write_text("one alice\n")
    tokens = TokenFile(path)
    moment = path.stat().st_mtime_ns
    for number, (text, one, two) in enumerate(
        [("two bob\n", None, "bob"), ("broken\n", None, "bob"), ("one carol\n", "carol", None)], 1
    ):
        path.write_text(text)
        os.utime(path, ns=(moment, moment + number * 1_000_000_000))
        for token, name in (("one", one), ("two", two)):
            assert tokens.principal_of(token) == (None if name is None else Principal(name))
    path.unlink()
    assert tokens.principal_of("one") == Principal("carol")


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "example.org", True),
        ("https://example.org", "example.org", True),
        ("https://EXAMPLE.org", "example.org:443", True),
        ("http://example.org:8080", "example.org:8080", True),
        ("http://example.org:8080", "example.org", False),
        ("https://app.example", "example.org", True),
        ("http://app.example", "example.org", False),
        ("https://app.example.evil", "example.org", False),
        ("https://evil.example", "example.org", False),
        ("null", "example.org", False),
        ("", "example.org", False),
        ("https://example.org/path", "example.org", False),
        ("https://[::1", "example.org", False),
        ("https://example.org:x", "example.org:x", False),
        ("https://example.org", None, False),
    ],
)
def test_pages_of_the_own_host_and_of_the_settings_are_allowed(
    origin: str | None, host: str | None, allowed: bool, tmp_path: Path
) -> None:
    access = _access(tmp_path, "t p", allowed_origins=("https://app.example/",))
    assert access.origin_allowed(origin, host) is allowed


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("localhost:8080", True),
        ("app.localhost", True),
        ("127.0.0.1:8080", True),
        ("127.9.9.9", True),
        ("[::1]:8080", True),
        ("rebound.example:8080", False),
        ("127.0.0.1.rebound.example", False),
        ("192.0.2.7", False),
        ("", False),
        (None, False),
    ],
)
def test_without_authentication_only_names_of_this_machine_are_ours(host: str | None, allowed: bool) -> None:
    access = Access.from_settings(Settings())
    assert access.host_allowed(host) is allowed
    assert access.origin_allowed(None, host) is allowed
    assert access.origin_allowed(f"http://{host}", host) is allowed


def test_an_allowed_origin_that_is_none_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="allowed_origins"):
        Access.from_settings(Settings(allowed_origins=("app.example",)))


def test_SE1_a_ticket_opens_one_connection_of_its_caller(tokens_file: Path) -> None:
    access = Access.from_settings(Settings(tokens_file=tokens_file))
    ticket = access.issue_ticket(Principal("ada"))
    assert access.authenticate({}, {"ticket": ticket}) == Principal("ada")
    for used in (ticket, "", "unknown"):
        with pytest.raises(Fault) as refused:
            access.authenticate({}, {"ticket": used})
        assert refused.value.code is ErrorCode.UNAUTHENTICATED
