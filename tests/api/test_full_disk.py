"""A disk without room: requests are refused by name then, and succeed once there is room."""

import time
from pathlib import Path

import httpx

from tests.support.api import Service, job, running, submit, upload


def fill(service: Service) -> Path:
    """Take all room on the disk of the service's home."""
    filler = Path(f"/proc/{service.process.pid}/root{service.home}/filler")
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def test_a_full_disk_is_refused_by_name_and_told_by_readyz(tmp_path: Path) -> None:
    """Ten submits got plain 500 and broken connections, and `/readyz` said ready."""
    settings = {"FARTHING_MIN_FREE_DISK_BYTES": "0"}
    with running(tmp_path / "home", module="tests.support.small_disk_api", **settings) as service:
        admin = service.client()
        dataset = upload(admin)["id"]
        assert submit(admin, job(dataset, mu="0.01")).status_code == 202
        filler = fill(service)
        for _ in range(10):
            refused = submit(admin, job(dataset, mu="0.01"))
            assert (refused.status_code, refused.json()["code"]) == (503, "disk-full"), refused.text
        assert "Retry-After" in refused.headers
        assert admin.get(f"/v1/datasets/{dataset}/budget").status_code == 200, "what only reads goes on"
        not_ready = readiness(service, 503).json()
        assert not_ready["code"] == "not-ready"
        assert "disk" in not_ready["detail"]
        filler.unlink()
        assert submit(admin, job(dataset, mu="0.01")).status_code == 202
        readiness(service, 200)


def readiness(service: Service, status: int) -> httpx.Response:
    """Return what `/readyz` says once it has a status: it writes every five seconds at most."""
    deadline = time.monotonic() + 60
    while (answer := httpx.get(f"{service.url}/readyz")).status_code != status:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.5)
    return answer
