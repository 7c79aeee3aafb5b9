"""A real object store over HTTP, for tests: an S3 server in a thread, found as every AWS client finds its own."""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from core.records.bucket import _connect


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
        _ask_for_rights(variables, after_requests="inf")  # what one test asks for holds for all of this process
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _connect.cache_clear()
        server.stop()


@dataclass(frozen=True)
class Credentials:
    """A user's keys to the object store."""

    id: str
    secret: str

    @contextmanager
    def used(self) -> Iterator[None]:
        """Have this process ask with these credentials, as one that was started with them."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ACCESS_KEY_ID", self.id)
            patch.setenv("AWS_SECRET_ACCESS_KEY", self.secret)
            _connect.cache_clear()
            try:
                yield
            finally:
                _connect.cache_clear()


def users(store: dict[str, str], rights: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Credentials]:
    """Make users who may do so much in each bucket, and have the store ask everybody for rights from now on.

    Args:
        store: as `object_store` yields it.
        rights: by user, then by bucket, the actions, such as `s3:GetObject`.
    """
    place = {"endpoint_url": store["AWS_ENDPOINT_URL_S3"], "region_name": store["AWS_DEFAULT_REGION"]}
    accounts, made = boto3.client("iam", **place), {}
    for user, buckets in rights.items():
        statements = [
            {"Effect": "Allow", "Action": list(actions), "Resource": [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]}
            for name, actions in buckets.items()
        ]
        name = f"{user}-{uuid4().hex[:12]}"
        accounts.create_user(UserName=name)
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        accounts.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=policy)
        key = accounts.create_access_key(UserName=name)["AccessKey"]
        made[user] = Credentials(key["AccessKeyId"], key["SecretAccessKey"])
    _ask_for_rights(store, after_requests="0")
    return made


def _ask_for_rights(store: dict[str, str], *, after_requests: str) -> None:
    """Have the store ask everybody for rights after so many requests."""
    answer = httpx.post(f"{store['AWS_ENDPOINT_URL_S3']}/moto-api/reset-auth", content=after_requests.encode())
    answer.raise_for_status()


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
