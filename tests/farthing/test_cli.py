"""The command line, run as people run it, against a real service: its output, the stream of that, its exit status."""

import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import typer
from pypdf import PdfReader
from safetensors.numpy import load

from farthing import Client, cli, console
from farthing.cli import app, main
from farthing.errors import FarthingError, JobFailed, ReleaseWithheld, Unreachable
from tests.farthing.conftest import Released, body
from tests.support.embedded import COLUMNS, KEY, ROOT, Embedded

Command = Callable[..., "subprocess.CompletedProcess[str]"]
WIDE = 200


def surroundings(service: Embedded, variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of a command."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    return clean | {"FARTHING_URL": service.url, "FARTHING_KEY": KEY, "COLUMNS": str(WIDE)} | variables


@pytest.fixture(scope="session")
def process(service: Embedded) -> Command:
    """Run `farthing ARGUMENTS` as people do; `stdin` is its input, other keywords replace environment variables."""

    def run(*arguments: str | Path, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "farthing.cli", *map(str, arguments)],
            cwd=ROOT,
            env=surroundings(service, variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def farthing(service: Embedded, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Do the same in this process: to start one takes longer than what most commands do."""

    def run(*arguments: str | Path, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        status: str | int | None = 0
        capfd.readouterr()
        with monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("FARTHING_")]:
                patch.delenv(name)
            for name, value in surroundings(service, variables).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["farthing", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            for stream in (console.out, console.err):
                patch.setattr(stream, "width", WIDE)
            try:
                main()
            except SystemExit as end:
                status = end.code
        told = capfd.readouterr()
        return subprocess.CompletedProcess(sys.argv, int(status or 0), told.out, told.err)

    return run


def ok(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def share_and_list(farthing: Command, dataset: str, scope: str, principal: str, secret: str) -> None:
    """Share a dataset with a principal in several ways; the last one, an epsilon, stays."""
    for silent in ((), ("--all", "--budget-share", "0.5")):
        assert farthing("share", dataset, principal, *silent).returncode == 2
    assert f"ana ({principal}) may use all of {scope}" in ok(farthing("share", dataset, principal, "--all"))
    assert dataset in ok(farthing("datasets", FARTHING_KEY=secret))
    ok(farthing("unshare", dataset, principal))
    ok(farthing("share", dataset, principal, "--budget-share", "0.5"))
    told = ok(farthing("share", dataset, principal, "--epsilon", "1", "--delta", "1e-6", "--change"))
    assert "may use delta 1e-6, epsilon 1 of" in told
    listed = ok(farthing("access", dataset))
    assert re.search(rf"{principal} +ana +analyst +delta 1e-6, epsilon 1 +0 +0 +100", listed)
    assert json.loads(ok(farthing("access", dataset, "--json")))["name"] == "ana"


def judge_and_retract(farthing: Command, ended: str, model: str, secret: str) -> None:
    assert model in ok(farthing("approvals"))
    assert model not in ok(farthing("approvals", FARTHING_KEY=secret)) + ok(farthing("models", FARTHING_KEY=secret))
    assert ok(farthing("approve", model, "--reason", "as agreed")) == f"{model} is approved\n"
    assert re.search(rf"^{model} .*toy.* ana .*approved", ok(farthing("models", FARTHING_KEY=secret)), re.MULTILINE)
    (listed,) = ok(farthing("models", "--job", ended, "--json")).splitlines()
    assert (json.loads(listed)["id"], json.loads(listed)["job"]) == (model, ended)
    assert ended in ok(farthing("jobs", "--approval", "approved"))
    assert "job[b]" in ok(farthing("watch", ended, FARTHING_KEY=secret))
    refused = farthing("reject", model, "--reason", "too fine")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "conflict" in refused.stderr
    assert farthing("retract", model, stdin="n\n", FARTHING_KEY=secret).returncode == 1
    assert ok(farthing("retract", model, "--yes", FARTHING_KEY=secret)) == f"{model} is retracted\n"
    assert model in ok(farthing("models", "--approval", "retracted"))
    assert "model-retracted" in farthing("summary", model).stderr


def test_the_way_of_a_dataset(farthing: Command, client: Client, records: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "metadata.json"
    declared = {"name": "toy [bold]", "columns": COLUMNS, "budget": {"epsilon": "3"}, "approval": True}
    metadata.write_text(json.dumps(declared))
    shown = ok(farthing("upload", records, "--metadata", metadata))
    (dataset,) = re.findall(r"ds_\w+", shown)
    (scope,) = re.findall(r"sc_\w+", shown)
    assert "toy [bold]" in shown  # a stranger's name is text, never markup
    assert re.search(r"^rows +300", shown, re.MULTILINE)
    assert dataset in ok(farthing("datasets"))
    assert json.loads(ok(farthing("datasets", "--json")).splitlines()[0])["id"]
    counts = ok(farthing("validation", dataset))
    assert "300 rows" in counts
    assert "for the owner alone" in counts
    assert re.search(r"^per cent +100 +0 +0 +100", ok(farthing("budget", dataset)), re.MULTILINE)

    made = farthing("key", "ana", "--role", "analyst")
    secret = ok(made).strip()
    assert secret not in made.stderr
    (principal,) = re.findall(r"pr_\w+", made.stderr)
    assert ok(farthing("me", FARTHING_KEY=secret)) == f"analyst {principal} (ana)\n"
    assert dataset not in ok(farthing("datasets", FARTHING_KEY=secret))
    share_and_list(farthing, dataset, scope, principal, secret)

    job = tmp_path / "job.json"
    job.write_text(json.dumps(body(dataset, mu="0.05")))
    waiting = ok(farthing("train", job, FARTHING_KEY=secret))
    assert "its release waits for the owner's approval" in waiting
    (ended,) = re.findall(r"job_\w+", waiting)
    model = client.job(ended).released
    assert model is not None
    judge_and_retract(farthing, ended, model, secret)

    assert "is frozen: a question" in ok(farthing("freeze", scope, "--reason", "a question"))
    frozen = farthing("train", job)
    assert frozen.returncode == 1
    assert frozen.stderr.startswith("scope-frozen: ")
    ok(farthing("unfreeze", scope, "--reason", "answered"))
    rotated = farthing("rotate", FARTHING_KEY=secret)
    fresh = ok(rotated).strip()
    assert farthing("me", FARTHING_KEY=secret).returncode == 1
    assert ok(farthing("me", FARTHING_KEY=fresh)) == f"analyst {principal} (ana)\n"
    assert farthing("revoke", *re.findall(r"key_\w+", rotated.stderr)).returncode == 0
    assert farthing("me", FARTHING_KEY=fresh).returncode == 1
    assert farthing("remove-record", dataset, "3", stdin="n\n").returncode == 1
    removed = ok(farthing("remove-record", dataset, "3", "--yes"))
    assert removed.startswith(f"{dataset}: row 3 is removed; ")
    assert farthing("remove-record", dataset, "0", "--yes").returncode == 2
    assert "/row" in farthing("remove-record", dataset, "100000", "--yes").stderr
    assert farthing("erase", dataset, stdin="n\n").returncode == 1
    assert client.dataset(dataset).state == "ready"
    assert ok(farthing("erase", dataset, "--yes")).startswith(f"{dataset}: eras")


def test_keys_are_listed_and_one_more_is_made(farthing: Command) -> None:
    made = farthing("key", "ben", "--role", "analyst")
    (principal,) = re.findall(r"pr_\w+", made.stderr)
    fresh = ok(farthing("rotate", FARTHING_KEY=ok(made).strip())).strip()
    mine = ok(farthing("keys", FARTHING_KEY=fresh)).splitlines()[1:]
    assert [line.split()[3] for line in mine] == [principal] * 2
    assert ["revoked" in line for line in mine] == [False, True]
    assert fresh not in ok(farthing("keys"))
    assert {json.loads(line)["principal"] for line in ok(farthing("keys", "--json")).splitlines()} > {principal}
    more = farthing("key", "ben's desk", "--role", "analyst", "--principal", principal)
    assert ok(farthing("me", FARTHING_KEY=ok(more).strip())).startswith(f"analyst {principal} ")


def test_the_way_of_a_job(farthing: Command, service: Embedded, tmp_path: Path) -> None:
    dataset = service.upload()
    job = tmp_path / "job.json"
    job.write_text(json.dumps(body(dataset, mu="0.5")))
    priced = ok(farthing("estimate", job))
    assert re.search(r"^mu +0\.5", priced, re.MULTILINE)
    assert re.search(r"^steps +\d", priced, re.MULTILINE)
    assert json.loads(ok(farthing("estimate", "-", "--json", stdin=job.read_text())))["cost"]["mu"] == "0.5"
    trained = farthing("train", job)
    assert "Ctrl-C leaves it running" in trained.stderr
    assert "job[b]" in ok(trained)
    assert re.search(r"spent \d+\.\d+ % of the budget", trained.stdout)
    one = ok(farthing("train", job, "--detach", "--idempotency-key", "mine")).strip()
    assert one == ok(farthing("train", job, "--detach", "--idempotency-key", "mine")).strip()
    assert "job[b]" in ok(farthing("watch", one))
    listed = ok(farthing("jobs", "--dataset", dataset, "--state", "succeeded"))
    assert len(re.findall("job_", listed)) == 2
    shown = ok(farthing("job", one, "--wait", "1"))
    assert re.search(r"^state +succeeded", shown, re.MULTILINE)
    assert re.search(r"^site +\(service\)", shown, re.MULTILINE)
    assert re.search(r"^privacy +mu 0\.5", shown, re.MULTILINE)
    assert re.search(r"^resources +device auto, processes 1", shown, re.MULTILINE)
    assert re.search(r"^retry allowance +1 ", shown, re.MULTILINE)
    told = json.loads(ok(farthing("job", one, "--json")))
    assert told["dataset"] == dataset
    assert told["resources"]["device"] == "auto"
    spec = ok(farthing("job", one, "--spec"))
    again = ok(farthing("train", "-", "--detach", stdin=spec)).strip()
    assert again != one
    assert ok(farthing("job", again, "--spec")) == spec
    assert ok(farthing("cancel", one)) == f"{one}: succeeded\n"
    assert json.loads(ok(farthing("report", one)))["job"]["id"] == one


def test_what_a_model_says(farthing: Command, released: Released, tmp_path: Path) -> None:
    model = released.model
    table = ok(farthing("summary", model, "--level", "0.9"))
    assert "P>|z|" in table
    assert re.search(r"^job\[c\] +-?\d", table, re.MULTILINE)
    assert json.loads(ok(farthing("summary", model, "--json")))["n"] == 2000
    ratios = ok(farthing("odds-ratios", model))
    assert re.search(r"^age +1\.\d+ +\[", ratios, re.MULTILINE)
    assert "intervals are unchecked" in ratios
    assert "on 2 degrees of freedom" in ok(farthing("test", model, "job[b]", "job[c]"))
    assert "on 1 degrees of freedom" in ok(farthing("test", model, "job[b] = job[c]"))
    unread = farthing("test", model, "job[b] == 0")
    assert (unread.returncode, unread.stdout) == (2, "")
    assert unread.stderr.splitlines()[-1].endswith("^")
    assert "differentially private" in ok(farthing("methods", model))
    (found,) = json.loads(ok(farthing("predict", model, "-", stdin='[{"age": 40, "job": "b"}]')))
    assert 0 < found["probability"] < 1
    (known,) = json.loads(ok(farthing("predict", model, "-", "--level", "0.9", stdin='[{"age": 40, "job": "b"}]')))
    assert known["interval"][0] < known["probability"] < known["interval"][1]
    rows = tmp_path / "rows.csv"
    rows.write_text("id,age,job\n7,40,b\n")
    said = ok(farthing("predict", model, rows, "--level", "0.9"))
    assert said.splitlines() == [
        "id,age,job,predicted_probability,predicted_std_error,predicted_lower,predicted_upper",
        ",".join(map(str, (7, 40, "b", known["probability"], known["std_error"], *known["interval"]))),
    ]
    assert ok(farthing("predict", model, rows, "--output", tmp_path / "out.parquet")) == ""
    assert (tmp_path / "out.parquet").read_bytes().startswith(b"PAR1")
    for arguments in ((rows, "--output", tmp_path / "out.doc"), (tmp_path / "no.csv",), ("-", "--output", "out.csv")):
        wrong = farthing("predict", model, *arguments, stdin="[]")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert str(arguments[-1]).rpartition("/")[2] in wrong.stderr.replace("\n", "")
    assert json.loads(ok(farthing("export", model)))["model"] == model
    assert json.loads(ok(farthing("export", model, "--format", "json")))["model"] == model
    ok(farthing("export", model, "--to", tmp_path / "model.safetensors"))
    assert (tmp_path / "model.safetensors").stat().st_size > 100
    ok(farthing("export", model, "--format", "safetensors", "--to", tmp_path / "model"))
    assert (tmp_path / "model").stat().st_size == (tmp_path / "model.safetensors").stat().st_size


def test_a_binary_model_on_standard_output_is_read(service: Embedded, released: Released, tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> bytes:
        command = [sys.executable, "-m", "farthing.cli", "export", released.model, *map(str, arguments)]
        return subprocess.run(
            command, cwd=ROOT, env=surroundings(service, {}), stdout=subprocess.PIPE, check=True
        ).stdout

    run("--to", tmp_path / "model.safetensors")
    written = load((tmp_path / "model.safetensors").read_bytes())  # the order of its names differs each time
    piped = load(run("--format", "safetensors"))
    assert {name: values.tolist() for name, values in piped.items()} == {
        name: values.tolist() for name, values in written.items()
    }


def test_the_price_of_a_description_is_a_table(farthing: Command, released: Released) -> None:
    shown = ok(farthing("describe", released.dataset, "--mu", "0.1", "--price"))
    assert re.search(r"^look +0\.\d+ +-$", shown, re.MULTILINE)
    assert re.search(r"^frequencies +0\.\d+ +\d", shown, re.MULTILINE)
    assert "{" not in shown


def test_what_is_reckoned_from_a_model(farthing: Command, client: Client, released: Released, tmp_path: Path) -> None:
    model = released.model
    both = ok(farthing("summary", model, "--level", "0.9", "--level", "0.99"))
    assert re.search(r"\[0\.05 +0\.95\] +\[0\.005 +0\.995\]$", both, re.MULTILINE)
    page = tmp_path / "model.html"
    assert ok(farthing("summary", model, "--html", page)) == ""
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    sheet = tmp_path / "model.pdf"
    assert ok(farthing("summary", model, "--pdf", sheet, "--level", "0.9")) == ""
    assert "90" in PdfReader(sheet).pages[0].extract_text()
    assert re.search(r"^job\[c\] +\[", ok(farthing("intervals", model, "--method", "scheffe")), re.MULTILINE)
    asked = ok(farthing("intervals", model, "--coefficient", "age", "--level", "0.8", "--level", "0.9"))
    assert len(re.findall(r"^age.*\[.*\[", asked, re.MULTILINE)) == 1
    assert "intervals are unchecked" in asked
    assert farthing("intervals", model, "--method", "guess").returncode == 1
    region = ok(farthing("region", model, "age", "job[b]", "--at", "0,0.2", "--level", "0.9"))
    assert re.search(r"^90 % +(in|out)side", region, re.MULTILINE)
    assert json.loads(ok(farthing("region", model, "age", "--json")))["degrees_of_freedom"] == 1
    assert farthing("region", model, "age", "--at", "0,1").returncode == 2
    refused = farthing("rate-ratios", model)
    assert refused.returncode == 1
    assert "Poisson" in refused.stderr
    other = client.wait(client.submit(body(released.dataset, mu="0.8")).id).released
    assert "upper bounds" in ok(farthing("compare", model, str(other))).replace("\n  ", " ")
    assert json.loads(ok(farthing("compare", model, str(other), "--json")))["relation"] == "same_equation"


def test_what_an_auditor_reads(farthing: Command, released: Released) -> None:
    verified = json.loads(ok(farthing("verify", released.scope, "--json")))
    assert verified["ok"] is True
    told = ok(farthing("verify", released.scope))
    assert re.search(rf"^ledger +whole *$\n^entries +{verified['entries']} *$", told, re.MULTILINE)
    lines = ok(farthing("entries", released.scope, "--json")).splitlines()
    assert len(lines) == verified["entries"]
    shown = ok(farthing("entries", released.scope))
    assert re.search(r"^3 +reserve +job_.* - +\+\d+\.\d{4} +\d+\.\d{4} *$", shown, re.MULTILINE)
    left = re.search(r"^per cent +100 +([\d.]+)", ok(farthing("budget", released.dataset)), re.MULTILINE)
    assert left is not None
    assert shown.split()[-1] == f"{float(left[1]):.4f}"
    assert json.loads(ok(farthing("audit")).splitlines()[0])["action"]
    assert ok(farthing("audit", "--format", "csv")).startswith("id,")


def test_a_refusal_is_text_on_standard_error_and_status_1(farthing: Command, released: Released) -> None:
    beyond = farthing("train", "-", stdin=json.dumps(body(released.dataset, mu="50")))
    assert (beyond.returncode, beyond.stdout) == (1, "")
    assert beyond.stderr.startswith("privacy-budget-exhausted: ")
    wrong = farthing("estimate", "-", stdin=json.dumps(body(released.dataset, mu="-1")))
    assert wrong.returncode == 1
    assert "/privacy/mu" in wrong.stderr
    for command in (["summary", "mdl_none"], ["budget", "ds_none"], ["watch", "job_none"], ["verify", "sc_none"]):
        gone = farthing(*command)
        assert (gone.returncode, gone.stdout) == (1, "")
        assert gone.stderr.startswith("not-found: ")
        assert "Traceback" not in gone.stderr
    for nobody in ("wrong", ""):
        told = farthing("me", FARTHING_KEY=nobody).stderr
        assert told.startswith("unauthenticated: ")
        assert "FARTHING_KEY" in told.splitlines()[1]
        assert "farthing key NAME" in told.splitlines()[1]


def test_an_upload_s_metadata_is_its_declaration_before_it_is_uploaded(
    farthing: Command, service: Embedded, client: Client, tmp_path: Path
) -> None:
    dataset = service.upload()
    declared = client.dataset(dataset)
    metadata, job = tmp_path / "toy.json", tmp_path / "job.json"
    kept = {"name": "toy", "unit": "record", "adjacency": "zero_out", "rows": declared.rows, "columns": COLUMNS}
    metadata.write_text(json.dumps({**kept, "budget": {"epsilon": "8", "delta": "1e-6"}}))
    there = body(dataset)
    before = {name: value for name, value in there.items() if name != "dataset"}
    job.write_text(json.dumps(before))
    told = json.loads(ok(farthing("estimate", job, "--declaration", metadata, "--json")))
    assert told == client.estimate(there).model_dump(mode="json") | {"head": None}
    curve = json.loads(ok(farthing("curve", job, "--declaration", metadata, "--json")))
    assert curve == client.curve(there).model_dump(mode="json") | {"head": None}
    assert farthing("estimate", job, "--declaration", tmp_path / "absent.json").returncode == 2
    job.write_text(json.dumps(there))
    assert "/declaration" in farthing("estimate", job, "--declaration", metadata).stderr


@pytest.mark.slow
def test_nobody_there(farthing: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    away = farthing("me", "--url", "http://127.0.0.1:9")
    assert (away.returncode, away.stdout) == (3, "")
    assert "http://127.0.0.1:9" in away.stderr
    assert "farthing up" in away.stderr
    assert sum(pauses) > 5  # a service that is being restarted is waited for
    assert farthing("me", "--url", "http://[").returncode == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("datasets",),
        pytest.param(("me", "--json"), marks=pytest.mark.slow),
        pytest.param(("verify", "sc_nowhere"), marks=pytest.mark.slow),
        ("upload", "absent.csv"),
        pytest.param(("--help",), marks=pytest.mark.slow),
        (),
    ],
)
def test_a_process_says_the_same(process: Command, farthing: Command, arguments: tuple[str, ...]) -> None:
    started, here = process(*arguments), farthing(*arguments)
    assert started.returncode == here.returncode
    for one, other in ((started.stdout, here.stdout), (started.stderr, here.stderr)):
        assert re.sub(r"python -m \S+", "farthing", one) == re.sub(r"python -m \S+", "farthing", other)


def test_a_pipe_is_told_whole_identifiers(process: Command, released: Released) -> None:
    assert released.job.id in ok(process("jobs", COLUMNS=""))
    assert str(released.model) in ok(process("jobs", COLUMNS=""))


def test_a_wrong_call_is_status_2(farthing: Command, tmp_path: Path, records: Path) -> None:
    assert farthing("estimate", tmp_path / "absent.json").returncode == 2
    assert farthing("estimate", "-", stdin="{").returncode == 2
    metadata = tmp_path / "metadata.json"
    metadata.write_text("{}")
    assert "no such file" in farthing("upload", tmp_path / "absent.csv", "--metadata", metadata).stderr
    assert farthing("upload", records).returncode == 2
    assert farthing("predict", "mdl_x", "-", stdin="{}").returncode == 2
    assert farthing("up", "--port", "70000").returncode == 2
    assert farthing().returncode == 2


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Yield each command's name and its options."""
    if not hasattr(group, "commands"):
        yield names, {option for one in group.params for option in one.opts}
        return
    for name, command in group.commands.items():
        yield from commands(command, *names, name)


def test_every_command_prints_json_but_those_that_write_a_file_or_become_a_server() -> None:
    without = {name for name, options in commands(typer.main.get_command(app)) if "--json" not in options}
    assert without == {("export",), ("up",), ("backup",), ("restore",), ("reconcile",), ("admin-key",)}


def test_json_of_commands_that_print_words(farthing: Command, released: Released) -> None:
    assert json.loads(ok(farthing("me", "--json")))["role"] == "admin"
    assert json.loads(ok(farthing("methods", str(released.model), "--json")))["text"].startswith("We ")
    names = [json.loads(one)["name"] for one in ok(farthing("intervals", str(released.model), "--json")).splitlines()]
    assert "age" in names
    ended = json.loads(ok(farthing("watch", released.job.id, "--json")))
    assert (ended["state"], ended["id"]) == ("succeeded", released.job.id)
    assert json.loads(ok(farthing("certificate", "get", released.job.id, "--json")))["job"] == released.job.id


def test_a_refusal_is_a_problem_document_where_json_is_asked_for(farthing: Command, released: Released) -> None:
    beyond = farthing("train", "-", "--json", stdin=json.dumps(body(released.dataset, mu="50")))
    assert (beyond.returncode, beyond.stdout) == (1, "")
    assert json.loads(beyond.stderr)["code"] == "privacy-budget-exhausted"


def test_statuses_say_whether_the_same_command_may_succeed_later() -> None:
    assert cli.status_of(FarthingError(403, {"code": "privacy-budget-exhausted"})) == 1
    assert cli.status_of(FarthingError(409, {"code": "privacy-budget-reserved", "retryable": True})) == 3
    assert cli.status_of(Unreachable("http://127.0.0.1:9", "refused")) == 3
    assert cli.status_of(JobFailed("job_1", "failed", "diverged")) == 4
    assert cli.status_of(ReleaseWithheld("job_1", "pending", "waits")) == 4


def test_the_version_is_the_package_s(farthing: Command) -> None:
    assert ok(farthing("--version")) == f"farthing {metadata.version('farthing')}\n"


def test_every_command_explains_itself(farthing: Command) -> None:
    listed = ok(farthing("--help")).split("Commands:")[1]
    assert "..." not in listed, "the first sentence of a command's text has room beside its name"
    assert "..." not in ok(farthing("pretrained", "--help")).split("Commands:")[1]
    names = re.findall(r"^  ([a-z-]+)  +\S", listed, re.MULTILINE)
    assert {"up", "key", "upload", "estimate", "train", "watch", "summary", "budget", "verify"} <= set(names)
    told = ok(farthing("up", "--help"))
    for option in ("home", "host", "port", "workers", "witness"):
        assert f"--{option}" in told
        assert f"FARTHING_{option.upper()}" in told
    assert "FARTHING_ADMIN_KEY" in told


@pytest.mark.slow
def test_a_federated_job_is_trained_from_the_command_line(farthing: Command, service: Embedded, tmp_path: Path) -> None:
    """It is submitted, watched and shown like any other; its clients are listed where somebody asks for them."""
    one, other = service.upload(), service.upload()
    asked = {
        "model": {"kind": "linear", "target": "balance", "features": ["age", "job"]},
        "optimizer": {"kind": "noisy_gd", "steps": 10},
        "privacy": {"mu": "1"},
        "inference": {"intervals": False},
    }
    file = tmp_path / "job.json"
    file.write_text(json.dumps(asked))
    told = farthing("train", file, "--site", one, "--site", other, "--quorum", "2")
    assert told.returncode == 0, told.stderr
    assert "intercept" in told.stdout
    (name,) = set(re.findall(r"job_[0-9a-z]+", told.stderr.splitlines()[0]))
    listed = farthing("jobs", "--federation", name, "--json")
    clients = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [client["state"] for client in clients] == ["succeeded"] * 2
    assert {client["dataset"] for client in clients} == {one, other}


def test_the_way_of_a_mock_job(farthing: Command, service: Embedded, tmp_path: Path) -> None:
    dataset = service.upload()
    before = service.get(f"/v1/datasets/{dataset}/budget")
    job = tmp_path / "job.json"
    job.write_text(json.dumps(body(dataset, mu="0.5")))
    printed = ok(farthing("mock", job, "--rows", "300"))
    assert "Mock: trained on rows drawn from the declaration" in printed
    assert re.search(r"is a mock job and spent nothing; on the data it would cost \d+\.\d+ %", printed)
    one = ok(farthing("mock", job, "--detach")).strip()
    assert re.search(rf"^{one} +\w+, mock", ok(farthing("jobs", "--mock")), re.MULTILINE)
    assert re.search(r"^rows +2000, drawn from the declaration", ok(farthing("job", one)), re.MULTILINE)
    assert one not in ok(farthing("jobs"))
    mixed = farthing("jobs", "--mock", "--state", "queued")
    assert (mixed.returncode, "leave out --state" in mixed.stderr) == (2, True)
    assert farthing("mock", job, "--rows", "0").returncode == 2
    with Client(service.url, KEY) as client:
        model = client.train(json.loads(job.read_text()), mock=True)
        assert model.summary().lstrip().startswith("Mock: ")
        assert {found.mock for found in client.mock_jobs()} == {True}
    assert service.get(f"/v1/datasets/{dataset}/budget") == before


def test_the_way_of_a_sweep(farthing: Command, service: Embedded, tmp_path: Path) -> None:
    dataset = service.upload()
    settings = {"optimizer": {"kind": "noisy_gd"}, "privacy": {"epsilon": "1.5"}, "inference": {"intervals": False}}
    job = {**body(dataset), **settings}
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps({"job": job, "grid": {"/optimizer/steps": [3, 6], "/model/ridge": [0.01, 0.1]}}))
    priced = ok(farthing("sweep", file, "--price"))
    assert re.search(r"^fits +yes", priced, re.MULTILINE)
    assert len(re.findall(r"^[0-3] +steps [36], .*ridge 0\.", priced, re.MULTILINE)) == 4
    assert json.loads(ok(farthing("sweep", file, "--price", "--json")))["steps"] == 1
    printed = ok(farthing("sweep", file, "--idempotency-key", "swept"))
    assert "Sweep: " in printed
    (ended,) = set(re.findall(r"job_\w+(?= spent)", printed))
    again = farthing("sweep", "-", "--idempotency-key", "swept", "--detach", stdin=file.read_text())
    assert ok(again).strip() == ended, "the same key pays once"
    assert json.loads(ok(farthing("sweep", file, "--idempotency-key", "swept", "--json")))["id"] == ended
    for wrong, said in (([], "this is no field"), ({"colour": 1}, "colour is no field"), (7, "this is no field")):
        refused = farthing("sweep", "-", stdin=json.dumps(wrong))
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
    refused = farthing("sweep", "-", "--price", stdin=json.dumps({"jobs": 7, "grid": {"/a": 3}}))
    assert (refused.returncode, "/jobs" in refused.stderr) == (1, True), refused.stderr
    other = {"job": job, "grid": {"/optimizer/steps": [3, 0]}}
    refused = farthing("sweep", "-", stdin=json.dumps(other))
    assert (refused.returncode, "/grid/~1optimizer~1steps/1" in refused.stderr) == (1, True), refused.stderr
