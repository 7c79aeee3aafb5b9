"""Settings come from arguments, the environment and files, and secrets need stand in none but the last."""

from pathlib import Path

import pytest

from core.base.settings import ServiceSettings, with_password


def test_a_file_gives_a_setting_without_the_blanks_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "key"
    secret.write_text("  a key\n")
    monkeypatch.setenv("FARTHING_ADMIN_KEY_FILE", str(secret))
    assert ServiceSettings().admin_key == "a key"


def test_the_environment_wins_over_a_file_and_an_argument_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "port"
    secret.write_text("7001")
    monkeypatch.setenv("FARTHING_PORT_FILE", str(secret))
    assert ServiceSettings().port == 7001
    monkeypatch.setenv("FARTHING_PORT", "7002")
    assert ServiceSettings().port == 7002
    assert ServiceSettings(port=7003).port == 7003


def test_a_named_file_that_is_missing_is_no_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_ADMIN_KEY_FILE", str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        ServiceSettings()


def test_passwords_by_file_go_into_their_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("a/b@c:d\n")
    for name in ("DATABASE", "BROKER"):
        monkeypatch.setenv(f"FARTHING_{name}_PASSWORD_FILE", str(secret))
    monkeypatch.setenv("FARTHING_DATABASE_URL", "postgresql+psycopg://farthing@postgres:5433/farthing")
    monkeypatch.setenv("FARTHING_BROKER_URL", "redis://redis:6379/0")
    settings = ServiceSettings()
    assert settings.database_url == "postgresql+psycopg://farthing:a%2Fb%40c%3Ad@postgres:5433/farthing"
    assert settings.broker_url == "redis://:a%2Fb%40c%3Ad@redis:6379/0"
    assert ServiceSettings(**settings.model_dump()) == settings  # a child that is handed them puts in nothing twice


@pytest.mark.parametrize("url", ["redis://:old@redis:6379/0", "sqlite+pysqlite:////srv/farthing.sqlite"])
def test_a_url_with_a_password_or_no_server_stays_as_it_is(url: str) -> None:
    assert with_password(url, "new") == url


def test_a_setting_with_a_file_of_its_own_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARTHING_MASTER_KEY_FILE", str(tmp_path / "key"))
    settings = ServiceSettings()
    assert (settings.master_key, settings.master_key_file) == (None, tmp_path / "key")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.8.0.1", "::", "data.example"])
def test_an_address_that_others_reach_needs_a_proxy_or_a_word(host: str) -> None:
    with pytest.raises(ValueError, match="FARTHING_PROXY") as refused:
        ServiceSettings(host=host, admin_key="a secret")
    assert "a secret" not in str(refused.value)
    assert ServiceSettings(host=host, without_proxy=True).is_exposed
    assert not ServiceSettings(host=host, proxy="10.8.0.0/24").is_exposed


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_address_of_this_machine_needs_neither(host: str) -> None:
    assert not ServiceSettings(host=host).is_exposed
