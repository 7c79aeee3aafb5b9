"""A site's trainer that writes down its own readings and messages, and bugs that an audit of these must see.

`transcripts.jsonl` beside OBSERVED has a line for each sum of records (question, points, rows), for each total of what
several processes summed, and for each message that leaves. BUG plants one. `thinned` divides the noise of all sites by
the root of their number, and `seeded` gives all of them one seed. `reread` has every second batch of a stream read the
records of the one before it.
"""

import json
import os
from math import sqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from core.oracle import full
from core.oracle.full import ReadSelection
from core.oracle.samples import StreamOracle
from core.queries.sums.linear import LinearProblem
from core.queries.sums.peer_group import DistributedPeerGroup
from core.queries.sums.sharded import ShardedProblem
from core.training import oracles
from core.training.ledger_filter import LedgerFilter
from tests.support.problems import repeatable_generator

CLIENTS = 3


def listen(job: str, rank: int = 0) -> None:
    """Write down sums and messages from now on.

    Args:
        job: the environment variable that says whose they are.
        rank: which process of the job this is.
    """
    path = Path(os.environ["OBSERVED"]).with_name("transcripts.jsonl")
    plain_sum, plain_total = LinearProblem.integer_sum, ShardedProblem.integer_sum
    plain_send = DistributedPeerGroup.send

    def write(line: dict[str, Any]) -> None:
        with path.open("a") as file:  # one write, so that lines of several trainers do not mix
            file.write(json.dumps({"job": os.environ[job], "by": os.getpid(), "rank": rank, **line}) + "\n")

    def asked(question: Any, theta: Tensor, options: dict[str, Any]) -> dict[str, Any]:
        other, rows = options.get("other"), options.get("rows")
        return {
            "question": question.model_dump(mode="json"),
            "theta": theta.tolist(),
            "other": None if other is None else other.tolist(),
            "rows": None if rows is None else rows.tolist(),
        }

    def integer_sum(
        self: LinearProblem, question: Any, facts: Any, theta: Tensor, step: float, **options: Any
    ) -> Tensor:
        write({"sum": asked(question, theta, options)})
        return plain_sum(self, question, facts, theta, step, **options)

    def total(self: ShardedProblem, question: Any, facts: Any, theta: Tensor, step: float, **options: Any) -> Tensor:
        added = plain_total(self, question, facts, theta, step, **options)
        summed = {"facts": facts.model_dump(mode="json"), "step": step, "integers": added.tolist()}
        write({"total": {**asked(question, theta, options), **summed}})
        return added

    def send(self: DistributedPeerGroup, message: bytes) -> None:
        write({"said": message.hex()})
        plain_send(self, message)

    LinearProblem.integer_sum = integer_sum  # type: ignore[method-assign]
    ShardedProblem.integer_sum = total  # type: ignore[method-assign]
    DistributedPeerGroup.send = send  # type: ignore[method-assign]
    plant(os.environ.get("BUG", ""))


def plant(bug: str) -> None:
    """Plant a bug."""
    if bug == "thinned":
        plain = vars(full)["noised_mean"]

        def thinned(total: Tensor, question: Any, *arguments: Any) -> Any:
            return plain(total, question.model_copy(update={"sigma": question.sigma / sqrt(CLIENTS)}), *arguments)

        vars(full)["noised_mean"] = thinned
    if bug == "seeded":
        vars(oracles)["SystemGenerator"] = repeatable_generator
        pay = LedgerFilter.pay
        # Payments change no key.
        LedgerFilter.pay = lambda *arguments: bool(pay(*arguments)) and False  # type: ignore[method-assign]
    if bug == "reread":
        select, last = StreamOracle._select, list[ReadSelection]()

        def again(self: StreamOracle, question: Any) -> ReadSelection:
            found = select(self, question)
            last.append(last[-1] if len(last) % 2 and last[-1].terms == found.terms else found)
            return last[-1]

        StreamOracle._select = again  # type: ignore[method-assign]
