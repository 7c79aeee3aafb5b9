"""Handles and clients that travel: by pickle without the key, by copy with the same connections."""

import copy
import gc
import pickle
from collections.abc import Callable

import pytest

from farthing import Client, Model, WrongInput
from tests.farthing.conftest import Released
from tests.support.embedded import KEY, Embedded

HANDLES: list[Callable[[Client, str], object]] = [
    lambda client, model: client.model(model),
    lambda client, _: client,
    lambda client, _: client.pretrained,
]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FARTHING_KEY", "FARTHING_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("handle", HANDLES, ids=["model", "client", "weights"])
def test_the_key_is_in_no_pickle(
    client: Client, released: Released, handle: Callable[[Client, str], object], protocol: int
) -> None:
    read = client.model(released.model)
    assert read.params.size, "also after it was read"
    content = pickle.dumps(handle(client, released.model), protocol)
    for secret in (KEY, KEY[:20], "Bearer", "uthorization"):
        assert secret.encode() not in content
        assert secret.encode("utf-16-le") not in content


def test_a_password_of_the_address_is_in_no_pickle() -> None:
    with Client("http://somebody:hidden-word@127.0.0.1:9", key=KEY) as client:
        content = pickle.dumps([client, client.model("mdl_1")])
    assert b"hidden-word" not in content
    assert b"127.0.0.1:9" in content


def test_an_unpickled_handle_wants_a_key_or_a_client(
    client: Client, released: Released, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = client.model(released.model)
    found = pickle.loads(pickle.dumps(model))
    assert (type(found), found.id) == (Model, released.model)
    for _ in range(2):
        with pytest.raises(WrongInput, match=r"set FARTHING_KEY, or call .connect\(client\)"):
            found.summary()
    assert found.connect(client).nobs == 2000
    monkeypatch.setenv("FARTHING_KEY", KEY)
    with pickle.loads(pickle.dumps(client)) as again:
        assert again.ready()
        assert again.model(released.model).names == model.names


def test_a_key_of_the_environment_goes_to_its_own_address(
    service: Embedded, released: Released, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client("http://stranger.invalid:1", key="") as elsewhere:
        content = pickle.dumps(elsewhere.model(released.model))
    monkeypatch.setenv("FARTHING_URL", service.url)
    monkeypatch.setenv("FARTHING_KEY", KEY)
    found = pickle.loads(content)
    assert found.nobs == 2000
    found._wire.http.close()


def test_copies_share_the_connections(client: Client, released: Released) -> None:
    model = client.model(released.model)
    for found in (copy.copy(model), copy.deepcopy(model), copy.deepcopy([model])[0], copy.copy(client).model(model.id)):
        assert found._wire is client._wire
        assert found.nobs == 2000


def test_a_client_that_nobody_closes_closes_its_connections(service: Embedded) -> None:
    left = Client(service.url, KEY)
    assert left.ready()
    pool = left._wire.http
    del left
    gc.collect()
    assert pool.is_closed
