"""Fetch the scripts that others wrote, at fixed versions with their hashes: `make assets`.

The folder `assets/vendor` is committed, so that a service needs no network. Run this to change a version.
"""

import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "assets" / "vendor"
REGISTRY: Final = "https://registry.npmjs.org"


@dataclass(frozen=True)
class Package:
    """A package of npm, and the files of it that pages use."""

    name: str
    version: str
    sha512: str
    """Of the archive, in base64, as the registry states it."""
    files: tuple[tuple[str, str], ...]
    """In the archive, and under which name they are kept."""

    @property
    def address(self) -> str:
        """Where its archive is."""
        return f"{REGISTRY}/{self.name}/-/{self.name}-{self.version}.tgz"


PACKAGES: Final = (
    Package(
        "htmx.org",
        "2.0.11",
        "Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
        (("package/dist/htmx.min.js", "htmx.min.js"), ("package/LICENSE", "LICENSE-htmx.txt")),
    ),
    Package(
        "htmx-ext-sse",
        "2.2.4",
        "LJmxVhykyflBWgh5PvbRidcyuqMHlgfajmmzumvKctv9puvsufeH6OaejSMZTNTnEI8O2wXXn4ZZtBdpEMqmEQ==",
        (("package/dist/sse.min.js", "sse.min.js"),),
    ),
)


def fetch(package: Package) -> dict[str, bytes]:
    """Return the files of a package by the name that they are kept under.

    Raises:
        SystemExit: the archive is not the one whose hash is written here.
    """
    with urllib.request.urlopen(package.address, timeout=60) as answer:  # noqa: S310 - the registry's own address, https
        archive = answer.read()
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != package.sha512:
        raise SystemExit(f"{package.address} is not the archive that was reviewed.")
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for path, name in package.files:
            member = members.extractfile(path)
            assert member is not None, f"{path} is no file"
            found[name] = member.read()
    return found


def main() -> None:
    """Fetch all files, and say which of them changed."""
    FOLDER.mkdir(exist_ok=True)
    for package in PACKAGES:
        for name, content in fetch(package).items():
            path = FOLDER / name
            same = path.exists() and path.read_bytes() == content
            path.write_bytes(content)
            sys.stdout.write(f"{'same' if same else 'new '} {name} {len(content):,} bytes\n")


if __name__ == "__main__":
    main()
