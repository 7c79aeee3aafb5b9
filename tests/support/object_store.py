"""A real object store over HTTP, for tests: an S3 server in a thread, found as every AWS client finds its own."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from moto.server import ThreadedMotoServer

from core.store.bucket import _connect


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """Serve S3 on a free port; yields the variables by which processes find it, which are set in this one too."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "an-access-key",
        "AWS_SECRET_ACCESS_KEY": "a-secret-key",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    _connect.cache_clear()
    try:
        yield variables
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _connect.cache_clear()
        server.stop()


def new_bucket(name: str | None = None) -> str:
    """Make a bucket and return its name."""
    name = name or f"bucket-{uuid4().hex[:12]}"
    _connect().call_s3("create_bucket", Bucket=name)
    return name


def everything(bucket: str) -> dict[str, bytes]:
    """Return the content of every object of a bucket by its name."""
    system = _connect()
    found = system.call_s3("list_objects_v2", Bucket=bucket).get("Contents", ())
    return {one["Key"]: system.cat_file(f"{bucket}/{one['Key']}") for one in found}
