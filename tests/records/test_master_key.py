"""The master key: made once, replaced without a pause, and never mistaken for another."""

import base64
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.base.errors import NotReady
from core.base.settings import ServiceSettings
from core.records.encryption import Tampered, new_key
from core.records.master_key import (
    MasterKey,
    MasterKeys,
    add_master_key,
    check_master_keys,
    fingerprint_of,
    load_master_keys,
    make_master_key,
    parse_master_keys,
    prepare_master_key,
)


def text_of(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def test_a_wrapped_key_comes_back_for_its_dataset_only() -> None:
    master, key = MasterKey(new_key()), new_key()
    wrapped = master.wrap("ds_1", key)
    assert master.unwrap("ds_1", wrapped) == key
    assert master.wrap("ds_1", key) != wrapped
    assert fingerprint_of(wrapped) == master.fingerprint
    with pytest.raises(Tampered):
        master.unwrap("ds_2", wrapped)
    with pytest.raises(Tampered):
        MasterKey(new_key()).unwrap("ds_1", wrapped)
    version, name, sealed = wrapped.split(".")
    raw = bytearray(base64.b64decode(sealed))
    for place in range(len(raw)):
        raw[place] ^= 1
        with pytest.raises(Tampered):
            master.unwrap("ds_1", f"{version}.{name}.{base64.b64encode(raw).decode()}")
        raw[place] ^= 1
    for bad in ("", "v1", wrapped[:-9], f"v2.{name}.{sealed}"):
        with pytest.raises(Tampered):
            master.unwrap("ds_1", bad)


def test_neither_key_nor_wrapped_key_shows_a_secret() -> None:
    secret, key = new_key(), new_key()
    master = MasterKey(secret)
    for shown in (repr(master), str(MasterKeys((master,))), master.fingerprint, master.wrap("ds_1", key)):
        for hidden in (secret, key):
            assert hidden.hex() not in shown
            assert text_of(hidden) not in shown
    settings = ServiceSettings(master_key=text_of(secret))
    assert text_of(secret) not in repr(settings)


def test_a_key_from_the_environment_wins_over_a_file(tmp_path: Path) -> None:
    make_master_key(tmp_path / "master.key")
    secret = new_key()
    found = load_master_keys(ServiceSettings(home=tmp_path, master_key=text_of(secret)))
    assert found.current.secret == secret
    assert load_master_keys(ServiceSettings(home=tmp_path)).current.secret != secret
    (tmp_path / "other").write_text(text_of(secret) + "\n")
    assert load_master_keys(ServiceSettings(home=tmp_path, master_key_file=tmp_path / "other")).current.secret == secret


def test_one_machine_makes_a_key_once_that_only_its_user_can_read(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path / "home")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: prepare_master_key(settings, ()).current.secret, range(16)))
    assert len(set(made)) == 1
    assert settings.master_key_path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in settings.home.iterdir()] == ["master.key"]


def test_several_machines_never_make_one(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path / "home", cluster=True)
    with pytest.raises(NotReady, match=r"master key is missing.*FARTHING_MASTER_KEY_FILE.*openssl"):
        prepare_master_key(settings, ())
    assert not settings.home.exists()


def test_a_lost_key_is_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    first = prepare_master_key(settings, ())
    wrapped = first.current.wrap("ds_1", new_key())
    settings.master_key_path.unlink()
    with pytest.raises(NotReady, match=f"encrypted under master key {first.current.fingerprint}: put its file back"):
        prepare_master_key(settings, [wrapped])
    assert not settings.master_key_path.exists()


def test_a_wrong_key_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    here = prepare_master_key(settings, ())
    other = MasterKey(new_key())
    wrapped = other.wrap("ds_1", new_key())
    for ask in (
        lambda: check_master_keys(settings, [wrapped]),
        lambda: prepare_master_key(settings, [wrapped]),
        lambda: here.unwrap("ds_1", wrapped),
    ):
        with pytest.raises(NotReady) as refused:
            ask()
        assert other.fingerprint in refused.value.detail
        assert here.current.fingerprint in refused.value.detail


@pytest.mark.parametrize("text", ["", "\n", "not base64!", text_of(bytes(31)), text_of(bytes(33)), "é"])
def test_a_text_that_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "master.key").write_text(text)
    with pytest.raises(NotReady, match=r"base64 of 32|cannot be read"):
        load_master_keys(ServiceSettings(home=tmp_path))


def test_a_file_that_may_not_be_read_is_told_from_one_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "master.key").mkdir()
    with pytest.raises(NotReady, match="cannot be read"):
        load_master_keys(ServiceSettings(home=tmp_path))


def test_a_fresh_key_wraps_and_the_old_one_still_unwraps(tmp_path: Path) -> None:
    settings = ServiceSettings(home=tmp_path)
    before, key = prepare_master_key(settings, ()), new_key()
    wrapped = before.current.wrap("ds_1", key)
    add_master_key(settings.master_key_path)
    after = check_master_keys(settings, [wrapped])
    assert after.current != before.current
    assert after.unwrap("ds_1", wrapped) == key
    assert after.fingerprints[1:] == before.fingerprints
    assert settings.master_key_path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["master.key"]  # noqa: PTH208 - names are enough
    assert (
        parse_master_keys(f"{text_of(after.current.secret)}\n").unwrap("ds_1", after.current.wrap("ds_1", key)) == key
    )
