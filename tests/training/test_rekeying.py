"""A generator that somebody captures tells nothing of what is drawn after the next payment."""

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from core.mechanisms.generator import SystemGenerator
from tests.training.test_oracles import FULL, POISSON, STREAM, Counted, opened, plan

CHUNKED: list[dict[str, Any]] = [FULL | {"steps": 291}, POISSON | {"steps": 291}, STREAM | {"batch": 5}]
"""Methods whose chunks are of three or more questions each."""


class _Pair:
    """Two oracles with one generator's state forced on both, as somebody has who captured it."""

    def __init__(self, optimizer: dict[str, Any]) -> None:
        self.planned = plan(optimizer)
        made: list[SystemGenerator] = []

        def noted() -> SystemGenerator:
            made.append(SystemGenerator())
            return made[-1]

        with patch("core.training.oracles.SystemGenerator", noted):
            self.opened = [opened(self.planned) for _ in range(2)]
        self.generators = made
        self.point = torch.zeros(self.planned.facts.dimension, dtype=torch.float64)

    def capture(self) -> None:
        """Force the same key on both generators, with nothing drawn ahead: a captured state holds no more."""
        for generator in self.generators:
            generator.rekey()
            stream = Cipher(algorithms.AES(bytes(32)), modes.CTR(bytes(16))).encryptor()
            generator._SystemGenerator__stream = stream  # type: ignore[attr-defined]  # by its mangled name

    def ask(self) -> bool:
        """Ask both the same and say whether they answer the same: whether one could be foretold from the other."""
        question = self.planned.spec.optimizer.questions()[0]
        answers = [oracle.ask(question, self.point) for oracle, *_ in self.opened]
        journals = [journal for *_, journal in self.opened]
        rows = [journal.selections[-1][0] for journal in journals]
        same = torch.equal(answers[0].value, answers[1].value)
        if self.planned.spec.optimizer.kind != "clipped_sgd":
            return same
        assert rows[0] is not None
        assert rows[1] is not None
        return same or bool(torch.equal(rows[0], rows[1]))

    @property
    def paid(self) -> int:
        """The number of chunks that each has paid."""
        counts = {len(writer.chunks) for _, _, writer, _ in self.opened}
        assert len(counts) == 1
        return counts.pop()


@pytest.mark.parametrize("optimizer", CHUNKED, ids=lambda one: one["kind"])
def test_a_captured_generator_foretells_the_chunk_that_is_paid_and_nothing_after_it(optimizer: dict[str, Any]) -> None:
    """Noise and samples that were drawn ahead before the payment are dropped with the key.

    False alarms: two answers or samples that are equal by chance, below 2^-60.
    """
    pair = _Pair(optimizer)
    assert not pair.ask()  # each has a key of its own
    pair.capture()
    paid = pair.paid
    for _ in range(400):
        foretold = pair.ask()
        if pair.paid > paid:
            break
        assert foretold, "what is captured tells all that is drawn before the next payment"
    assert pair.paid == paid + 1
    assert not foretold
    assert not any(pair.ask() for _ in range(4))


def test_the_key_is_new_once_the_payment_is_committed_and_before_anything_is_read() -> None:
    events: list[str] = []

    class Told(Counted):
        def pay(self, chunk: int, state: bytes | None, step: int) -> None:
            super().pay(chunk, state, step)
            events.append("paid")

    genuine = SystemGenerator.rekey

    def noted(self: SystemGenerator) -> None:
        events.append("rekeyed")
        genuine(self)

    with patch("tests.training.test_oracles.Counted", Told), patch.object(SystemGenerator, "rekey", noted):
        oracle, _, _, journal = opened(planned := plan(FULL))
        events.clear()
        for _ in range(5):
            oracle.ask(planned.spec.optimizer.questions()[0], torch.zeros(planned.facts.dimension, dtype=torch.float64))
            events.append(f"read {len(journal.selections)}")
    assert events == [word for number in range(1, 6) for word in ("paid", "rekeyed", f"read {number}")]


def test_rekeying_leaves_the_law_of_what_is_drawn() -> None:
    """No draw has a part in the reason to drop draws: |z| < 4.5, one alarm in 147,000."""
    generator, told = SystemGenerator(), []
    for _ in range(3000):
        told.append(generator.ahead(1.0, 3, lambda many: (generator.bits(many) >> np.uint64(63)).astype(np.int64)))
        generator.rekey()
    ones, count = int(np.concatenate(told).sum()), 9000
    assert abs(ones - count / 2) < 4.5 * (count / 4) ** 0.5
