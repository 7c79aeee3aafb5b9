"""The catalogue: the methods and models that a job may ask for. Public, and the same for everybody."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel

from api.body import StrictRoute
from api.cost import PUBLIC, costs
from api.errors import problems
from core.base.errors import NotFound
from core.losses.cards import LOSSES, WEIGHTS, entry
from core.methods.base import Spec
from core.methods.registry import METHODS
from core.models.kinds import (
    LinearModel,
    LogisticModel,
    MultinomialModel,
    NetworkModel,
    PhaseRetrievalModel,
    PoissonModel,
)
from core.models.network.layers import LAYERS
from farthing.schemas.problems import Page

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=StrictRoute)

OFFERED: dict[str, type[BaseModel]] = {
    "logistic": LogisticModel,
    "linear": LinearModel,
    "poisson": PoissonModel,
    "multinomial": MultinomialModel,
    "phase_retrieval": PhaseRetrievalModel,
    "network": NetworkModel,
}


def _optimizer(method: type[Spec]) -> dict[str, Any]:
    return {
        "object": "optimizer",
        **method.card().model_dump(mode="json"),
        "settings": method.model_json_schema(),
    }


def _list(items: list[dict[str, Any]]) -> Page[dict[str, Any]]:
    return Page(data=items, has_more=False)


@router.get("/optimizers")
@costs(PUBLIC)
def list_optimizers() -> Page[dict[str, Any]]:
    """List the methods: paper, privacy notion, adjacencies, assumptions, settings and what they return."""
    return _list([_optimizer(method) for method in METHODS])


@router.get("/optimizers/{name}", responses=problems(NotFound))
@costs(PUBLIC)
def get_optimizer(name: Annotated[str, Path(max_length=60)]) -> dict[str, Any]:
    """Show one method with the JSON Schema of its settings."""
    for method in METHODS:
        if method.card().kind == name:
            return _optimizer(method)
    raise NotFound("There is no such optimizer.")


@router.get("/losses")
@costs(PUBLIC)
def list_losses() -> Page[dict[str, Any]]:
    """List the losses: public constants as formulas, assumptions, and the JSON Schema of their settings."""
    return _list([{"object": "loss", **entry(card, loss)} for loss, card in LOSSES.items()])


@router.get("/weights")
@costs(PUBLIC)
def list_weights() -> Page[dict[str, Any]]:
    """List the weights: the bounds that they give a loss as formulas, assumptions, and their settings' JSON Schema."""
    return _list([{"object": "weights", **entry(card, weights)} for weights, card in WEIGHTS.items()])


@router.get("/layers")
@costs(PUBLIC)
def list_layers() -> Page[dict[str, Any]]:
    """List the layers that a network may be made of, with the JSON Schema of what a job says of each."""
    return _list(
        [
            {"object": "layer", "kind": kind, "description": layer.__doc__, "settings": layer.model_json_schema()}
            for kind, layer in LAYERS.items()
        ]
    )


@router.get("/model-kinds")
@costs(PUBLIC)
def list_model_kinds() -> Page[dict[str, Any]]:
    """List the kinds of models with the JSON Schema of what a job says of them."""
    return _list(
        [
            {
                "object": "model-kind",
                "kind": kind,
                "description": model.__doc__,
                "offered": True,
                "losses": [card.kind for card in LOSSES.values() if kind in card.models],
                "settings": model.model_json_schema(),
            }
            for kind, model in OFFERED.items()
        ]
    )
