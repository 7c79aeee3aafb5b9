"""The recipes of CONTRIBUTING, carried out: a copy of the project with one more optimizer and one more loss trains."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from shutil import copy2
from textwrap import dedent

import pytest

from tests.support.embedded import LINEAR, ROOT, Embedded, embedded

pytestmark = pytest.mark.service

SPEC = '''
"""Descent by the signs of noised gradients."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from core.methods.base import Bound, Card, Plan, Spec
from core.privacy.arithmetic import Mu, Radius, Steps
from core.privacy.events import Event
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient


class SignDescent(Spec):
    """theta <- theta - step_size sign(mean gradient + noise)."""

    cited: ClassVar = "Nobody, 2026"
    kind: Literal["sign_descent"] = "sign_descent"
    steps: Steps | None = None
    step_size: float = 0.05
    mu: Mu | None = None
    radius: Radius | None = Field(default=None)
    start: Literal["zeros"] = "zeros"

    def plan(self, facts: Facts, mu: float) -> "SignDescentPlan":
        """Fill what is open."""
        del facts
        return self.closed(SignDescentPlan, steps=20, mu=mu, radius=10.0)

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="sign_descent",
            title="Sign descent",
            paper="a test's",
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(),
            returns="coefficients",
        )


class SignDescentPlan(SignDescent, Plan):
    """Sign descent with nothing open."""

    steps: Steps
    mu: Mu
    radius: Radius

    def questions(self) -> tuple[Gradient]:
        """Return the question of every step."""
        return (Gradient(sigma=self.steps**0.5 / self.mu),)

    def schedule(self, facts: Facts) -> Sequence[Event]:
        """Return one event a step."""
        del facts
        return (self.questions()[0].event(),) * self.steps

    def bound(self, facts: Facts) -> Bound:
        """Promise nothing."""
        del facts
        return Bound(quantity="nothing", value=None, confidence=None, trivial=20.0, vacuous=True, source="none")
'''

FIT = '''
"""Descent by the signs of noised gradients."""

import torch

from core.inference.estimate import Estimate
from core.methods.lifecycle import arrived, ended, starting_point
from core.methods.m_estimation.sign_descent.spec import SignDescentPlan
from core.oracle import Oracle, Status


def iterate(plan: SignDescentPlan, oracle: Oracle) -> tuple[Estimate, Status]:
    """Walk from zero."""
    (gradient,) = plan.questions()
    start = theta = starting_point(plan.start, oracle)
    left, scale = torch.tensor(data=False), 0.0
    for _ in range(plan.steps):
        slope = oracle.ask(gradient, theta)
        theta, left, _ = arrived(oracle.facts, theta - plan.step_size * slope.value.sign(), plan.radius)
        scale = slope.scale
    estimate = Estimate(
        theta=theta, start=start, family="gradient", left=left, scale=scale, step=plan.step_size,
        steps=torch.tensor(plan.steps),
    )
    return ended(estimate, Status.FINISHED)
'''


def with_line(path: Path, after: str, line: str) -> None:
    """Insert a line behind one that is there once."""
    text = path.read_text()
    assert text.count(after) == 1, (path, after)
    path.write_text(text.replace(after, after + line))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with the optimizer and the loss of this test."""
    place = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    kept = [
        name
        for name in listed.split("\0")
        if name.partition("/")[0] in {"api", "core", "farthing", "workers", "migrations"}
    ]
    for name in (*kept, "core/native/kernels.so"):
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            copy2(ROOT / name, place / name)
    package = place / "core" / "methods" / "m_estimation" / "sign_descent"
    package.mkdir()
    (package / "__init__.py").write_text('"""Sign descent."""\n')
    (package / "spec.py").write_text(dedent(SPEC).lstrip())
    (package / "fit.py").write_text(dedent(FIT).lstrip())
    registry = place / "core" / "methods" / "registry.py"
    with_line(
        registry,
        "from core.methods.m_estimation.noisy_newton.spec import NoisyNewton\n",
        "from core.methods.m_estimation.sign_descent.spec import SignDescent\n",
    )
    with_line(registry, "    NoisyNewton,\n", "    SignDescent,\n")
    return place


@pytest.fixture(scope="module")
def service(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("home"), root=copy) as running:
        yield running


def test_an_optimizer_that_was_added_by_the_recipe_trains_to_a_summary(service: Embedded) -> None:
    dataset = service.upload()
    body = {"model": LINEAR, "optimizer": {"kind": "sign_descent"}, "inference": {"intervals": False}}
    ended = service.wait(service.submit(dataset, **body, privacy={"mu": "0.5"}))
    assert ended["state"] == "succeeded", ended
    shown = service.get(f"/v1/models/{ended['result']['model']}/summary")
    assert shown["method"]["title"] == "Sign descent"
    assert "(Nobody, 2026)" in shown["methods"]
    assert '"sign_descent"' in service.http.get("/v1/optimizers").text
