"""Words for containers that compose has started, and for the stack's database."""

import json
import os
import subprocess
from typing import Any

from tests.stack.stack import PROJECT


def docker(*arguments: str, check: bool = True, told: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run the engine's client; `told` goes to its standard input."""
    client = os.environ["FARTHING_STACK_DOCKER"]
    return subprocess.run([client, *arguments], check=check, capture_output=True, text=True, input=told)


def container(service: str, project: str = PROJECT) -> str:
    """Return the container of a service of a project, whether it runs or not."""
    wanted = {"project": project, "service": service, "oneoff": "False"}
    labels = [f"label=com.docker.compose.{name}={value}" for name, value in wanted.items()]
    filters = [part for label in labels for part in ("--filter", label)]
    (found,) = docker("ps", "--all", "--quiet", *filters).stdout.split()
    return found


def inspected(service: str, project: str = PROJECT) -> dict[str, Any]:
    return dict(json.loads(docker("inspect", container(service, project)).stdout)[0])


def run_python(program: str, *arguments: str, service: str, project: str = PROJECT) -> str:
    """Run a program inside a container, with the environment of its processes; return its output."""
    return docker("exec", "--interactive", container(service, project), "python", "-", *arguments, told=program).stdout


def ask_database(statement: str) -> list[dict[str, Any]]:
    """Return the rows of a statement, asked as the database's owner in its own container."""
    return list(json.loads(_psql(f"SELECT coalesce(json_agg(line), '[]') FROM ({statement}) AS line")))


def give_password(role: str, password: str) -> None:
    """Let a role log in."""
    _psql(f"ALTER ROLE \"{role}\" PASSWORD '{password}'")


def _psql(statement: str) -> str:
    command = (
        "psql",
        "--username=farthing",
        "--quiet",
        "--no-align",
        "--tuples-only",
        "--set=ON_ERROR_STOP=1",
        "farthing",
    )
    return docker("exec", "--interactive", container("postgres"), *command, told=f"{statement};\n").stdout
