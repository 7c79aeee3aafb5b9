"""Windows without a browser: signed in to the console over HTTP, with the token that its forms carry."""

import re

import httpx


def window_of(url: str, key: str) -> httpx.Client:
    """Return a client that is signed in to the console with a key."""
    window = httpx.Client(base_url=url, timeout=60)
    answer = window.post("/sign-in", data={"key": key})
    assert answer.status_code == 303, answer.text
    return window


def csrf(window: httpx.Client) -> str:
    """Return the token that forms of this session carry."""
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', window.get("/sign-out").text)
    assert found is not None
    return found[1]
