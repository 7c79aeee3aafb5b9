"""Webhooks and the email address of a principal, for a client of the service."""

from collections.abc import Iterator, Sequence

from farthing.schemas.notices import DeliveryView, EmailView, SecretWebhookView, WebhookView
from farthing.wire import Wire


class NoticeResources:
    """The part of a client that chooses how its principal hears of events."""

    _wire: Wire

    def create_webhook(self, url: str, kinds: Sequence[str] | None = None) -> SecretWebhookView:
        """Have events posted to an address; the secret that verifies them is in the answer, once.

        Args:
            url: https://..., public.
            kinds: of events, such as ``["job.ended"]``; None: all.
        """
        body = {"url": url} | ({} if kinds is None else {"kinds": list(kinds)})
        # Sent once: without an idempotency key a second send would make a second webhook.
        return SecretWebhookView.model_validate(self._wire.send("POST", "/v1/webhooks", sends=1, json=body).json())

    def webhooks(self) -> Iterator[WebhookView]:
        """Yield your webhooks, newest first."""
        return map(WebhookView.model_validate, self._wire.pages("/v1/webhooks"))

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook with its deliveries."""
        self._wire.send("DELETE", f"/v1/webhooks/{webhook}")

    def rotate_webhook(self, webhook: str) -> SecretWebhookView:
        """Give a webhook another secret, which is in the answer, once; the one before signs too for a day."""
        # Sent once: a second rotation would replace the secret of an answer that was lost.
        answer = self._wire.send("POST", f"/v1/webhooks/{webhook}/rotate", sends=1)
        return SecretWebhookView.model_validate(answer.json())

    def test_webhook(self, webhook: str) -> DeliveryView:
        """Have a test event posted soon; a good answer switches on a webhook that was off."""
        return DeliveryView.model_validate(self._wire.send("POST", f"/v1/webhooks/{webhook}/test", sends=1).json())

    def deliveries(self, webhook: str) -> Iterator[DeliveryView]:
        """Yield the deliveries of a webhook, newest first."""
        return map(DeliveryView.model_validate, self._wire.pages(f"/v1/webhooks/{webhook}/deliveries"))

    def email(self) -> EmailView:
        """Return your email address, and what is mailed there."""
        return EmailView.model_validate(self._wire.get("/v1/me/email"))

    def set_email(self, address: str, kinds: Sequence[str] | None = None) -> EmailView:
        """Set your email address; a new one is mailed a code for `confirm_email`.

        Args:
            address: one address, without a name.
            kinds: of events that are mailed; None: all.
        """
        body = {"address": address} | ({} if kinds is None else {"kinds": list(kinds)})
        return EmailView.model_validate(self._wire.send("PUT", "/v1/me/email", sends=1, json=body).json())

    def confirm_email(self, code: str) -> EmailView:
        """Confirm your email address by the code that was mailed there."""
        answer = self._wire.send("POST", "/v1/me/email/confirm", sends=1, json={"code": code})
        return EmailView.model_validate(answer.json())

    def remove_email(self) -> None:
        """Take your email address away."""
        self._wire.send("DELETE", "/v1/me/email")
