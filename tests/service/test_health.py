import pytest

from core.base.errors import NotReady
from core.ledger.claims import freeze_ledger, thaw_ledger
from core.service import health
from core.service.context import Context


def test_a_frozen_ledger_is_not_ready_even_where_it_agrees_with_its_witness(context: Context) -> None:
    assert health.check(context)["ledger"] == "ok"
    context.database.transaction(freeze_ledger, "it was restored.")
    with pytest.raises(NotReady, match="restored"):
        health.check(context)
    context.database.transaction(thaw_ledger)
    assert health.check(context)["ledger"] == "ok"
