"""Where a setting comes from, and what is said about a wrong one."""

from pathlib import Path

import pytest

from server.settings import (
    ModelPrice,
    Settings,
    SettingsError,
    describe_settings,
    load_settings,
    require_authentication,
    unknown_variables,
)


def write(folder: Path, text: str) -> Path:
    path = folder / "turnwire.toml"
    path.write_text(text)
    return path


def test_without_anything_the_defaults_hold_and_home_is_expanded() -> None:
    settings = load_settings(env={})
    assert settings == Settings()
    assert settings.state_dir == Path.home() / ".local/state/turnwire"


def test_flag_wins_over_environment_over_file(tmp_path: Path) -> None:
    config = write(tmp_path, 'host = "localhost"\nport = 1\nqueue_limit = 3\n')
    env = {"TURNWIRE_PORT": "2", "TURNWIRE_QUEUE_LIMIT": "4"}
    settings = load_settings(config, env, port=5, host=None)
    assert (settings.host, settings.queue_limit, settings.port) == ("localhost", 4, 5)


def test_the_file_may_be_named_by_the_environment_and_its_paths_start_from_it(tmp_path: Path) -> None:
    config = write(tmp_path, 'state_dir = "state"\nscripts = "/scripts"\n')
    settings = load_settings(env={"TURNWIRE_CONFIG": str(config)})
    assert settings.config == config
    assert settings.state_dir == tmp_path / "state"
    assert settings.scripts == Path("/scripts")


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("OPENAI_BASE_URL", "openai_base_url"),
        ("OPENAI_API_KEY", "openai_api_key"),
        ("DATABASE_URL", "database_url"),
        ("REDIS_URL", "redis_url"),
    ],
)
def test_well_known_names_are_understood_and_the_prefixed_one_wins(variable: str, field: str) -> None:
    value = {"database_url": "postgresql://a/", "redis_url": "redis://a/"}.get(field, "http://a/")
    assert getattr(load_settings(env={variable: value}), field) == value
    env = {variable: value, f"TURNWIRE_{field.upper()}": value + "b"}
    assert getattr(load_settings(env=env), field) == value + "b"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings(env={"OPENAI_API_KEY": "", "TURNWIRE_PORT": " "}) == Settings()


def test_texts_become_numbers_flags_lists_and_tables() -> None:
    settings = load_settings(
        env={
            "TURNWIRE_RATE_PER_S": "2.5",
            "TURNWIRE_LOG_JSON": "true",
            "TURNWIRE_ALLOWED_ORIGINS": "http://a, http://b,",
            "TURNWIRE_PRICES": '{"m": {"input": 1, "output": 2.5}}',
            "TURNWIRE_SYSTEM_PROMPT": "null",
        }
    )
    assert settings.rate_per_s == 2.5
    assert settings.log_json is True
    assert settings.allowed_origins == ("http://a", "http://b")
    assert settings.prices == {"m": ModelPrice(input=1.0, output=2.5)}
    assert settings.system_prompt == "null"


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("TURNWIRE_PORT", "abc", "an integer from 0 to 65535"),
        ("TURNWIRE_PORT", "65536", "an integer from 0 to 65535"),
        ("TURNWIRE_RATE_PER_S", "0", "a number above 0"),
        ("TURNWIRE_LOG_JSON", "maybe", "true or false"),
        ("TURNWIRE_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("OPENAI_BASE_URL", "localhost:8000", "a URL that starts with http:// or https://"),
    ],
)
def test_a_wrong_value_is_named_with_its_source_and_what_is_allowed(
    variable: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(env={variable: value})
    text = str(caught.value)
    assert all(part in text for part in (variable, repr(value), allowed))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1\n", "prot: not a setting"),
        ('config = "other.toml"\n', "config: not a setting"),
        ('port = "80"\n', "port: '80'"),
        ("port = \n", "is not TOML"),
        ("[prices.m]\ninptu = 1\n", "inptu"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(write(tmp_path, text), {})
    assert said in str(caught.value)
    assert "turnwire.toml" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml"):
        load_settings(tmp_path / "nothing.toml", {})


def test_secrets_are_never_shown() -> None:
    settings = load_settings(env={"OPENAI_API_KEY": "s3cret", "DATABASE_URL": "postgresql://u:s3cret@h/d"})
    assert "s3cret" not in repr(settings)
    with pytest.raises(SettingsError) as caught:
        load_settings(env={"DATABASE_URL": "mysql://u:s3cret@h/d"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_tokens(host: str) -> None:
    require_authentication(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_any_other_address_needs_tokens(host: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tokens_file"):
        require_authentication(Settings(host=host))
    require_authentication(Settings(host=host, tokens_file=tmp_path / "tokens"))


def test_variables_that_look_like_settings_and_are_none_are_told() -> None:
    env = {"TURNWIRE_PROT": "1", "TURNWIRE_PORT": "1", "TURNWIRE_TEST_NODE": "/node", "HOME": "/"}
    assert unknown_variables(env) == ("TURNWIRE_PROT",)


def test_every_setting_is_described() -> None:
    infos = {info.name: info for info in describe_settings()}
    assert tuple(infos) == Settings.__struct_fields__
    assert all(info.meaning and info.type for info in infos.values())
    assert infos["port"].variables == ("TURNWIRE_PORT",)
    assert infos["port"].default == "8080"
    assert infos["state_dir"].default == "~/.local/state/turnwire"
