"""Sweeps as requests: several jobs that differ in their settings, or one job and a grid, become one job.

`SweepRequest.job` makes that job, whose optimizer is a sweep of candidates. Its planner then names a field of a
candidate, which nobody sent; `SweepRequest.naming` renames it to the field of the body that it came from.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import product
from math import prod
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from core.base.errors import FieldError, Invalid, Refusal
from core.base.validation_errors import field_errors
from core.methods.selection.sweep.spec import MOST_CANDIDATES
from core.planning.job import JobSpec
from core.privacy.facts import Frozen

ROUTE: Final = "POST /v1/sweeps"
MOST_POINTERS: Final = 16
MOST_VALUES: Final = 20_000
"""Values of all candidates together: as many as the body of a job may have, which no grid shall pass by repeating."""
_MOST_ERRORS: Final = 20
_RIDGE: Final = "/model/ridge"
_CANDIDATE: Final = re.compile(r"/optimizer/candidates/(\d+)(/.*)?", re.ASCII)
_OWN: Final = ("runs", "way", "score_share")
"""Settings of the whole sweep: fields of the body, and of the optimizer that it becomes."""


class _Candidate(NamedTuple):
    """Settings to try, as JSON, and the place of each value in its list of the grid; of several jobs none."""

    optimizer: dict[str, Any]
    ridge: float | None
    places: Mapping[str, int]


GridPointer = Annotated[str, Field(max_length=200)]
GridValues = Annotated[list[Any], Field(min_length=1, max_length=MOST_CANDIDATES)]


class SweepRequest(Frozen):
    """A sweep: `jobs` that differ in optimizer and ridge alone, or a `job` and a `grid` of its settings.

    All candidates are trained, or as many as are drawn at random, and the one with the best private score is released.
    """

    jobs: Annotated[tuple[JobSpec, ...], Field(min_length=2, max_length=MOST_CANDIDATES)] | None = Field(
        default=None, description="alike but for `optimizer` and `model.ridge`"
    )
    job: JobSpec | None = Field(default=None, description="in place of `jobs`: the one that `grid` varies")
    grid: Annotated[dict[GridPointer, GridValues], Field(min_length=1, max_length=MOST_POINTERS)] | None = Field(
        default=None,
        description='values by JSON pointers into `job`, such as {"/optimizer/steps": [10, 20]}: each below '
        f"/optimizer, or /model/ridge. Every combination is a candidate, at most {MOST_CANDIDATES}: pointers in "
        "alphabetical order, the values of the last one changing first",
    )
    runs: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="expected number of runs, where they are drawn at random; null: of candidates"
    )
    way: Literal["selection", "composition"] | None = Field(
        default=None, description="the way to price it; null: the cheaper one"
    )
    score_share: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="part of each run's mu^2 that its score takes; null: planned"
    )

    @model_validator(mode="after")
    def _in_one_form(self) -> Self:
        given = {name for name in ("jobs", "job", "grid") if getattr(self, name) is not None}
        if not given:
            raise PydanticCustomError("no_jobs", "give jobs, or a job and a grid", {"field": "jobs"})
        if "jobs" in given and len(given) > 1:
            raise PydanticCustomError("two_forms", "leave it out beside a job or a grid", {"field": "jobs"})
        if given == {"job"}:
            raise PydanticCustomError("no_grid", "is missing; it says which settings to try", {"field": "grid"})
        if given == {"grid"}:
            raise PydanticCustomError("no_job", "is missing; it is what the grid varies", {"field": "job"})
        return self

    @cached_property
    def _first(self) -> JobSpec:
        found = self.job if self.jobs is None else self.jobs[0]
        assert found is not None, "a validator has refused a body without"
        return found

    @cached_property
    def _candidates(self) -> list[_Candidate]:
        """The settings to try, in order.

        Raises:
            Invalid: the jobs differ elsewhere, or the grid is too large or points elsewhere.
        """
        if self.jobs is None:
            return _combined(self._first, self.grid or {})
        _refuse_other_differences(self.jobs)
        return [_Candidate(_settings(one), getattr(one.model, "ridge", None), {}) for one in self.jobs]

    def body(self) -> dict[str, Any]:
        """Return the body of the one job, as `POST /v1/jobs` takes it.

        Raises:
            Invalid: the jobs differ elsewhere, or the grid is too large or points elsewhere.
        """
        _refuse_readers(self._first, self._base)
        ridge = self._candidates[0].ridge
        # Where all have one ridge it is the model's, so that both forms of a request make the same job.
        shared = all(one.ridge == ridge for one in self._candidates)
        candidates = [
            {"optimizer": one.optimizer} | ({} if shared else {"ridge": one.ridge}) for one in self._candidates
        ]
        body = self._first.model_dump(exclude_unset=True)
        if shared and ridge is not None:
            body["model"] = {**body["model"], "ridge": ridge}
        own = {name: getattr(self, name) for name in _OWN if getattr(self, name) is not None}
        return {**body, "optimizer": {"kind": "sweep", "candidates": candidates, **own}}

    def to_job(self) -> JobSpec:
        """Return the one job that this is.

        Raises:
            Invalid: jobs differ elsewhere, the grid is too large or points elsewhere, two candidates are alike, or
                what they say is no job; with pointers into this body.
        """
        sent = self.body()
        try:
            made = JobSpec.model_validate(sent)
        except ValidationError as error:
            found = field_errors(error.errors(include_url=False, include_input=False), sent)
            fields = tuple(dict.fromkeys(self._renamed(field) for field in found))[:_MOST_ERRORS]
            raise Invalid(f"This sweep is no job: see {fields[0].pointer}.", *fields) from None
        self._refuse_twins(made.model_dump(mode="json")["optimizer"]["candidates"])
        return made

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Raise a refusal of the job as one of this body, which names the fields that were sent.

        Raises:
            Refusal: of the same class, with the same facts.
        """
        try:
            yield
        except Refusal as refusal:
            raise type(refusal)(
                self._retold(refusal.detail, refusal.fields),
                *dict.fromkeys(
                    FieldError(self.pointer(field.pointer), self._retold(field.detail, ())) for field in refusal.fields
                ),
                retry_after_seconds=refusal.retry_after_seconds,
                **refusal.facts,
            ) from refusal

    def _retold(self, text: str, fields: Sequence[FieldError]) -> str:
        """Return a text in which pointers to candidates, and to given fields, are those into this body."""
        named = [re.escape(field.pointer) for field in fields if field.pointer.startswith("/")]
        any_of = "|".join((r"/optimizer/candidates(?:/[\w~]+)*", *named))
        # Whole pointers alone: /privacy is a part of /privacy/mu.
        return re.sub(rf"(?<![\w/~])(?:{any_of})(?![\w/~])", lambda found: self.pointer(found[0]), text)

    @property
    def _base(self) -> str:
        """Pointer to the job that says all that candidates have in common."""
        return "/job" if self.jobs is None else "/jobs/0"

    @property
    def _listed(self) -> str:
        """Pointer to all candidates."""
        return "/grid" if self.jobs is None else "/jobs"

    def _renamed(self, field: FieldError) -> FieldError:
        return FieldError(self.pointer(field.pointer), field.detail)

    def pointer(self, pointer: str) -> str:
        """Return a pointer into this body for one into the job that it becomes; others, such as headers', stay."""
        if not pointer.startswith("/"):
            return pointer
        named = _CANDIDATE.fullmatch(pointer)
        if named is not None:
            inside = named[2] or ""
            return self._inside(int(named[1]), _RIDGE if inside == "/ridge" else inside)
        if pointer == "/optimizer" or pointer.startswith("/optimizer/"):
            own = pointer.removeprefix("/optimizer")
            return own if own.removeprefix("/").partition("/")[0] in _OWN else self._listed
        if pointer == _RIDGE and self.grid is not None and _RIDGE in self.grid:
            return f"/grid/{_escaped(_RIDGE)}"
        return self._base + pointer

    def _inside(self, place: int, pointer: str) -> str:
        """Return the pointer to a field of a candidate's own job: to its value in the grid, where it has one there."""
        if self.jobs is not None:
            return f"/jobs/{place}{pointer}"
        for name, chosen in self._candidates[place].places.items():
            if pointer == name or pointer.startswith(f"{name}/"):
                return f"/grid/{_escaped(name)}/{chosen}{pointer.removeprefix(name)}"
        return f"/job{pointer}" if pointer else "/grid"

    def _refuse_twins(self, candidates: Sequence[Mapping[str, Any]]) -> None:
        seen: dict[str, int] = {}
        fields = []
        for place, one in enumerate(candidates):
            first = seen.setdefault(json.dumps(one, sort_keys=True), place)
            if first != place and self.jobs is not None:
                fields.append(FieldError(f"/jobs/{place}", f"is /jobs/{first} once more; leave it out"))
            elif first != place:
                fields.append(FieldError("/grid", f"makes candidates {first} and {place} alike; name each value once"))
        if fields:
            raise Invalid("Two candidates of this sweep are alike.", *fields[:_MOST_ERRORS])


def _settings(job: JobSpec) -> dict[str, Any]:
    """Return a job's method as it was sent."""
    return {**job.optimizer.model_dump(mode="json", exclude_unset=True), "kind": job.optimizer.kind}


def _combined(job: JobSpec, grid: Mapping[str, Sequence[Any]]) -> list[_Candidate]:
    """Return a candidate for each combination of a grid's values.

    Raises:
        Invalid: there are fewer than two or too many, or a pointer leads to nothing that may vary.
    """
    count = prod(map(len, grid.values()))
    if not 1 < count <= MOST_CANDIDATES:
        detail = f"makes {count} candidates; give values for 2 to {MOST_CANDIDATES}"
        raise Invalid(f"The grid {detail}.", FieldError("/grid", detail))
    names = sorted(grid)
    wrong = [field for name in names for field in _misplaced(name, names)]
    if wrong:
        raise Invalid("The grid points at what a sweep cannot vary.", *wrong)
    made: list[_Candidate] = []
    left = MOST_VALUES
    for places in product(*(range(len(grid[name])) for name in names)):
        chosen = {name: (place, grid[name][place]) for name, place in zip(names, places, strict=True)}
        made.append(_candidate(job, chosen))
        left -= _values(made[-1].optimizer)
        if left < 0:
            detail = f"makes candidates of more than {MOST_VALUES} values together; give fewer, or shorter lists"
            raise Invalid(f"The grid {detail}.", FieldError("/grid", detail))
    return made


def _values(value: object) -> int:
    """Return how many values JSON holds: numbers, texts, lists and objects together."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_values, inside))


def _misplaced(name: str, names: Sequence[str]) -> Iterator[FieldError]:
    """Yield the faults of one of a grid's pointers."""
    where = f"/grid/{_escaped(name)}"
    if name != _RIDGE and (not name.startswith("/optimizer/") or re.search(r"~(?![01])|/(?=/|$)", name)):
        yield FieldError(where, f"must be {_RIDGE}, or a JSON pointer to a field below /optimizer")
    above = [one for one in names if name.startswith(f"{one}/")]
    if above:
        yield FieldError(where, f"lies within {above[0]}; give one of both")


def _candidate(job: JobSpec, chosen: Mapping[str, tuple[int, Any]]) -> _Candidate:
    """Return a job's settings with some values of a grid, each given with its place there."""
    optimizer, ridge = _settings(job), getattr(job.model, "ridge", None)
    for name, (_, value) in chosen.items():
        if name == _RIDGE:
            ridge = value
            continue
        parts = [part.replace("~1", "/").replace("~0", "~") for part in name.split("/")[2:]]
        here: Any = optimizer
        for part in parts[:-1]:
            here = here.get(part) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            detail = "lies within nothing that the job's optimizer has; name a field of it"
            raise Invalid("The grid points at nothing.", FieldError(f"/grid/{_escaped(name)}", detail))
        here[parts[-1]] = value
    return _Candidate(optimizer, ridge, {name: place for name, (place, _) in chosen.items()})


def _refuse_other_differences(jobs: Sequence[JobSpec]) -> None:
    """Refuse jobs that differ in more than their method and ridge.

    Raises:
        Invalid: with the first such field of each job.
    """
    common = [_common(one) for one in jobs]
    fields = []
    for place, one in enumerate(common):
        where = _difference(common[0], one)
        if where is not None:
            detail = "differs from /jobs/0: a sweep's jobs differ in optimizer and model.ridge alone"
            fields.append(FieldError(f"/jobs/{place}{where}", detail))
    if fields:
        named = fields[0].pointer
        raise Invalid(f"The jobs of a sweep are alike but for their settings: see {named}.", *fields[:_MOST_ERRORS])


def _common(job: JobSpec) -> dict[str, Any]:
    body = job.model_dump(mode="json", exclude={"optimizer"})
    body["model"].pop("ridge", None)
    return body


def _difference(first: object, second: object) -> str | None:
    """Return the pointer to the first difference of two JSON values; None: they are equal."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name in dict.fromkeys(("kind", *first, *second)):  # of another kind, all else differs as well
            inside = _difference(first.get(name), second.get(name))
            if inside is not None:
                return f"/{_escaped(name)}{inside}"
        return None
    return None if first == second else ""


def _refuse_readers(job: JobSpec, base: str) -> None:
    """Refuse a sweep that reads anything but one dataset.

    Raises:
        Invalid: with a pointer.
    """
    if job.federation is not None:
        detail = "is for other methods: a sweep reads one dataset"
        raise Invalid("A sweep reads one dataset.", FieldError(f"{base}/federation", detail))
    if job.dataset is None:
        raise Invalid("A sweep needs a dataset.", FieldError(f"{base}/dataset", "name a dataset"))
    if job.models:
        raise Invalid("A sweep is about no released model.", FieldError(f"{base}/models", "leave them out"))


def _escaped(part: str) -> str:
    """Return one part of a JSON pointer."""
    # RFC 6901: `~` first, or the one of `~1` would be escaped again.
    return part.replace("~", "~0").replace("/", "~1")
