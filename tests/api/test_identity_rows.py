"""A writer into the database deletes the rows that uploads are compared with: that gives no second budget."""

import pytest
from sqlalchemy import text as sql

from tests.api.test_identity import made, people, send, text
from tests.support.api import Service
from tests.support.verified import verified

ATTACKS = {
    "the summary is deleted": "DELETE FROM identities WHERE dataset_id = :dataset",
    "all of it is deleted, with the owner's key": "DELETE FROM identities WHERE dataset_id = :dataset; "
    "DELETE FROM identity_counts WHERE dataset_id = :dataset; DELETE FROM identity_keys WHERE owner_id = :owner",
    "the counts are deleted": "DELETE FROM identity_counts WHERE dataset_id = :dataset",
    "the counts are another's": "UPDATE identity_counts SET sealed = x'00' WHERE dataset_id = :dataset",
    "the summary is of another site": "UPDATE identities SET site = 'north' WHERE dataset_id = :dataset",
    "the records are said to have left": "UPDATE identities SET moved = 1 WHERE dataset_id = :dataset",
    "the dataset is said to be another's": "UPDATE datasets SET owner_id = :another WHERE id = :dataset",
}
"""SQL by what it does. Of these all but two got the same file a second budget at 2ee9d81."""


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_rows_taken_away_get_no_second_budget(service: Service, attack: str) -> None:
    owner, who = service.someone("owner")
    _, another = service.someone("owner")  # whose later uploads are refused too, where the dataset is said to be theirs
    content = text(people(sum(map(ord, attack))))
    first = made(send(owner, content))
    database = service.database()
    with database.write() as session:
        for statement in attack.split("; "):
            told = {"dataset": first["id"], "owner": who["principal"], "another": another["principal"]}
            session.execute(sql(statement), {name: value for name, value in told.items() if f":{name}" in statement})
    answer = send(owner, content, distinct_because="they are other people than those")
    assert answer.status_code in {409, 503}, answer.text
    if "moved" in attack:
        assert answer.json()["code"] == "duplicate-dataset"
    else:
        assert answer.json()["code"] == "scope-frozen"
        assert first["id"] in answer.text or first["scope"] in answer.text
        with database.read() as session:
            frozen = session.execute(
                sql("SELECT frozen_reason FROM scopes WHERE id = :scope"), {"scope": first["scope"]}
            ).scalar_one()
        assert frozen is not None
    database.dispose()


def test_the_owner_s_key_alone_taken_away_stores_nothing(service: Service) -> None:
    owner, who = service.someone("owner")
    content = text(people(77))
    made(send(owner, content))
    database = service.database()
    with database.write() as session:
        session.execute(sql("DELETE FROM identity_keys WHERE owner_id = :owner"), {"owner": who["principal"]})
    database.dispose()
    answer = send(owner, content, distinct_because="they are other people than those")
    assert answer.status_code == 503
    assert "identity_keys" in answer.text


def test_the_entry_that_commits_to_what_is_kept_is_of_one_form_and_verifies(service: Service) -> None:
    owner, _ = service.someone("owner")
    records = people(78)
    one, other = (
        made(send(owner, text(records))),
        made(send(owner, text(people(79)), distinct_because="these are people of another study")),
    )
    stranger, _ = service.someone("owner")
    same = made(send(stranger, text(records)))
    bodies = []
    for client, dataset in ((owner, one), (owner, other), (stranger, same)):
        entries = client.get(f"/v1/scopes/{dataset['scope']}/entries").json()["data"]
        (upload,) = [entry for entry in entries if entry["kind"] == "upload"]
        bodies.append(upload["body"])
        found = verified(client, dataset["scope"])
        assert found["ok"], found["reason"]
    digests = {body.split('"identity":"')[1][:71] for body in bodies}
    assert len(digests) == len(bodies), "the same records, and the same statement or none: another digest each time"
    assert len({len(body) for body in bodies}) == 1
