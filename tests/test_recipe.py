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

LOSS = '''
"""The fair loss: |psi| grows towards c and never reaches it."""

from math import log1p
from typing import ClassVar, Literal

import numpy as np

from core.losses.bases import AbstractRobust, Array, robust_card


class Fair(AbstractRobust):
    """rho(t) = c^2 (u - log(1 + u)), u = |t|/c."""

    card: ClassVar = robust_card("scale c^2 (u - log(1 + u)), u = |r|/c", None)
    phrase: ClassVar = "fair loss (c = {c:g}, residual scale known, {scale:g})"
    kind: Literal["fair"] = "fair"

    def rho(self, residual: float) -> float:
        """Return c^2 (u - log(1 + u))."""
        u = residual / self.c
        return self.c * self.c * (u - log1p(u))

    def psi(self, residual: Array) -> Array:
        """Return t/(1 + u)."""
        return residual / (1 + np.abs(residual) / self.c)
'''

RECORDS = '''
"""The fair loss of a record."""

import torch
from torch import Tensor

from core.losses.fair import Fair
from core.losses.robust_torch import RobustRecords


class FairRecords(RobustRecords[Fair]):
    """scale c^2 (u - log(1 + u)), u = |r|/c."""

    def value(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return u - log(1 + u), times scale c^2."""
        size = self._argument(margin, target).abs_()
        return size.sub(size.log1p()).mul_(self.scale * self.c**2)

    def score(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return c u/(1 + |u|)."""
        u = self._argument(margin, target)
        return u.div(1 + u.abs()).mul_(self.c).clamp_(-self.c, self.c)

    def curvature(self, margin: Tensor, target: Tensor) -> Tensor:
        """Return (1 + |u|)^-2 over the scale."""
        return self._argument(margin, target).abs_().add_(1).reciprocal_().square_().div_(self.scale)
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
    losses = place / "core" / "losses"
    (losses / "fair.py").write_text(dedent(LOSS).lstrip())
    (losses / "fair_torch.py").write_text(dedent(RECORDS).lstrip())
    with_line(
        losses / "registry.py",
        "from core.losses.counts import Poisson\n",
        "from core.losses.fair import Fair\n",
    )
    with_line(losses / "registry.py", "    OstrovskiiBach,\n", "    Fair,\n")
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


def test_a_loss_that_was_added_by_the_recipe_is_listed_forecast_trained_and_told(service: Embedded) -> None:
    dataset = service.upload()
    body = {
        "dataset": dataset,
        "model": LINEAR | {"loss": {"kind": "fair", "scale": 2.0}},
        "optimizer": {"kind": "noisy_gd"},
        "inference": {"accept_unchecked": True},
        "privacy": {"mu": "0.5"},
    }
    (listed,) = [one for one in service.get("/v1/losses")["data"] if one["kind"] == "fair"]
    assert listed["title"] == "scale c^2 (u - log(1 + u)), u = |r|/c"
    estimate = service.http.post("/v1/estimates", json=body)
    assert estimate.status_code == 200, estimate.text
    ended = service.wait(service.submit(**body))
    assert ended["state"] == "succeeded", ended
    shown = service.get(f"/v1/models/{ended['result']['model']}/summary")
    assert "(fair loss (c = 1.345, residual scale known, 2))" in shown["methods"]
    foreseen = {one["name"]: one["width"] for one in estimate.json()["prediction"]["coefficients"]}
    for row in shown["coefficients"]:
        low, high = row["interval"]
        assert foreseen[row["name"]] / 3 < high - low < 3 * foreseen[row["name"]]
