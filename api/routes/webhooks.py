"""Webhooks: addresses to which events are posted, signed."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, status

from api.body import StrictRoute
from api.cost import ANYBODY, CHANGE, FEW_VALUES, READ, Cost, costs
from api.deps import After, Caller, Db, Limit, capped, page
from api.errors import problems
from api.schemas import NewWebhook
from core.base.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from core.service import webhooks as service
from farthing.schemas.notices import DeliveryView, SecretWebhookView, WebhookView
from farthing.schemas.problems import Page

router = APIRouter(
    prefix="/v1/webhooks", tags=["notices"], route_class=StrictRoute, responses=problems(Unauthenticated, Forbidden)
)
WebhookId = Annotated[str, Path(max_length=60)]


@router.post("", status_code=status.HTTP_201_CREATED, responses=problems(Conflict, Invalid))
@costs(Cost(ANYBODY, body_bytes=None, values=FEW_VALUES))
def create_webhook(body: NewWebhook, caller: Caller, db: Db, request: Request) -> SecretWebhookView:
    """Have events posted to an address, signed after Standard Webhooks.

    The secret is in this answer and nowhere else. The webhook ends with the key that made it.
    """
    view = service.create(db, caller, body.url, body.kinds)
    request.state.target = f"webhooks/{view.id}"
    return view


@router.get("")
@costs(READ)
def list_webhooks(caller: Caller, db: Db, after: After = None, limit: Limit = 20) -> Page[WebhookView]:
    """List your webhooks, newest first."""
    return page(service.page(db, caller, after, capped(limit) + 1), capped(limit))


@router.delete("/{webhook_id}", status_code=status.HTTP_204_NO_CONTENT, responses=problems(NotFound))
@costs(CHANGE)
def remove_webhook(webhook_id: WebhookId, caller: Caller, db: Db) -> None:
    """Remove a webhook with its deliveries; waiting ones are not posted any more."""
    service.remove(db, caller, webhook_id)


@router.post("/{webhook_id}/rotate", responses=problems(NotFound))
@costs(CHANGE)
def rotate_webhook(webhook_id: WebhookId, caller: Caller, db: Db) -> SecretWebhookView:
    """Give a webhook another secret; the one before signs beside it for a day.

    The webhook ends with the key of this request from then on.
    """
    return service.rotate(db, caller, webhook_id)


@router.post("/{webhook_id}/test", status_code=status.HTTP_202_ACCEPTED, responses=problems(NotFound, Conflict))
@costs(CHANGE)
def test_webhook(webhook_id: WebhookId, caller: Caller, db: Db) -> DeliveryView:
    """Post a test event soon; a good answer switches on a webhook that was off."""
    return service.test(db, caller, webhook_id)


@router.get("/{webhook_id}/deliveries", responses=problems(NotFound))
@costs(READ)
def list_deliveries(
    webhook_id: WebhookId, caller: Caller, db: Db, after: After = None, limit: Limit = 20
) -> Page[DeliveryView]:
    """List the deliveries of a webhook, newest first, with what became of each."""
    return page(service.delivery_page(db, caller, webhook_id, after, capped(limit) + 1), capped(limit))
