"""Where whole answers come from that are no views: texts, tables, files, and JSON that a library or a method shapes.

A view says it of each of its fields (`farthing.schemas.provenance`); an answer that is no view says it here.
An operation that is in neither way accounted for is a failure of `tests/laws/test_provenance.py`.
"""

from typing import Any, Final

from farthing.schemas.provenance import KEYWORD, Provenance

_DECLARED: Final = Provenance.DECLARED
_PAID: Final = Provenance.PAID
_OPERATIONAL: Final = Provenance.OPERATIONAL

ANSWERS: Final[dict[tuple[str, str], Provenance]] = {
    # of what was released, and of the ledger's account of it
    ("get", "/v1/jobs/{job_id}/events"): _PAID,
    ("get", "/v1/jobs/{job_id}/report"): _PAID,
    ("get", "/v1/datasets/{dataset_id}/report"): _PAID,
    ("get", "/v1/jobs/{job_id}/certificate"): _PAID,
    ("get", "/v1/jobs/{job_id}/artifacts/{name}"): _PAID,
    ("get", "/v1/scopes/{scope_id}/head/signed"): _PAID,
    ("get", "/v1/models/{model_id}/summary"): _PAID,
    ("get", "/v1/models/{model_id}/description"): _PAID,
    ("get", "/v1/models/{model_id}/intervals"): _PAID,
    ("get", "/v1/models/{model_id}/odds-ratios"): _PAID,
    ("get", "/v1/models/{model_id}/rate-ratios"): _PAID,
    ("post", "/v1/models/{model_id}/contrasts"): _PAID,
    ("post", "/v1/models/{model_id}/tests"): _PAID,
    ("post", "/v1/models/{model_id}/regions"): _PAID,
    ("get", "/v1/models/{model_id}/compare/{other_id}"): _PAID,
    ("post", "/v1/models/{model_id}/predict"): _PAID,
    ("get", "/v1/models/{model_id}/export"): _PAID,
    # of what was declared, and of the code
    ("get", "/v1/datasets/{dataset_id}/mock"): _DECLARED,
    ("get", "/v1/optimizers"): _DECLARED,
    ("get", "/v1/optimizers/{name}"): _DECLARED,
    ("get", "/v1/losses"): _DECLARED,
    ("get", "/v1/weights"): _DECLARED,
    ("get", "/v1/layers"): _DECLARED,
    ("get", "/v1/model-kinds"): _DECLARED,
    # of the service itself
    ("get", "/healthz"): _OPERATIONAL,
    ("get", "/readyz"): _OPERATIONAL,
    ("get", "/version"): _OPERATIONAL,
    ("get", "/openapi.json"): _OPERATIONAL,
    ("get", "/metrics"): _OPERATIONAL,
    ("get", "/v1/audit/export"): _OPERATIONAL,
    ("get", "/.well-known/jwks.json"): _OPERATIONAL,
}


def mark(document: dict[str, Any]) -> None:
    """Write into an OpenAPI document where each answer comes from that is no view."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            found = ANSWERS.get((method, path))
            if found is not None:
                operation[KEYWORD] = found.value
