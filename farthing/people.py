"""Principals and their keys, for a client of the service."""

from collections.abc import Iterator, Mapping
from typing import Any
from uuid import uuid4

from farthing.figures import exact
from farthing.schemas.invitations import AcceptedView, InvitationView, NewInvitationView
from farthing.schemas.keys import KeyView, NewKeyView, PrincipalStateView, PrincipalView
from farthing.wire import Wire


class PeopleResources:
    """The part of a client that makes keys, ends them, and shuts principals out."""

    _wire: Wire

    def me(self) -> PrincipalView:
        """Return who this key speaks for."""
        return PrincipalView.model_validate(self._wire.get("/v1/me"))

    def create_key(self, name: str, role: str, *, principal: str | None = None) -> NewKeyView:
        """Make a key: of a new principal (owner, analyst, auditor or admin), or one more of a present one.

        The secret is in the answer, once.
        """
        body = {"name": name, "role": role} | ({} if principal is None else {"principal": principal})
        made = NewKeyView.model_validate(self._wire.post("/v1/keys", body, key=str(uuid4())))
        # A secret is never sent twice: where the first answer was lost, the key it named is replaced.
        return self.rotate_key(made.id) if made.key is None else made

    def keys(self, principal: str | None = None) -> Iterator[KeyView]:
        """Yield keys without their secrets, newest first: all of them for an admin, one's own otherwise.

        Args:
            principal: the principal of the keys, `pr_...`; None: all keys that are listed.
        """
        asked = {} if principal is None else {"principal": principal}
        return map(KeyView.model_validate, self._wire.pages("/v1/keys", **asked))

    def rotate_key(self, key: str) -> NewKeyView:
        """Replace a key by a fresh one, whose secret is in the answer; the old one stops at once."""
        # Sent once: the first send may have ended this key, and a second one would be refused.
        answer = self._wire.send("POST", f"/v1/keys/{key}/rotate", sends=1)
        return NewKeyView.model_validate(answer.json())

    def revoke_key(self, key: str) -> KeyView:
        """Stop a key for good."""
        return KeyView.model_validate(self._wire.post(f"/v1/keys/{key}/revoke"))

    def principals(self) -> Iterator[PrincipalStateView]:
        """Yield who holds keys, newest first; for admins and auditors."""
        return map(PrincipalStateView.model_validate, self._wire.pages("/v1/principals"))

    def disable(self, principal: str, reason: str) -> PrincipalStateView:
        """Shut a principal out: all its keys answer 401 at once, and none of its queued jobs starts. For admins."""
        return PrincipalStateView.model_validate(
            self._wire.post(f"/v1/principals/{principal}/disable", {"reason": reason})
        )

    def enable(self, principal: str) -> PrincipalStateView:
        """Let a principal in again, with the keys that were neither revoked nor have expired. For admins."""
        return PrincipalStateView.model_validate(self._wire.post(f"/v1/principals/{principal}/enable"))

    def invite(
        self, role: str, note: str, *, dataset: str | None = None, cap: Mapping[str, Any] | str | None = None
    ) -> NewInvitationView:
        """Invite a colleague; the token to send is in the answer, once, and works once within seven days.

        Args:
            role: owner, analyst, auditor or admin; an owner invites analysts.
            note: for whom it is, in words.
            dataset: one of your own, to which an analyst gets access.
            cap: the part of that dataset's budget, such as ``{"budget_share": "0.1"}``, or ``"all"``.
        """
        asked = {"role": role, "note": note, "dataset": dataset, "budget_cap": cap}
        body = exact({name: value for name, value in asked.items() if value is not None})
        # Sent once: a second send would make a second invitation.
        return NewInvitationView.model_validate(self._wire.send("POST", "/v1/invitations", sends=1, json=body).json())

    def invitations(self) -> Iterator[InvitationView]:
        """Yield invitations, newest first: all for admins and auditors, an owner's own."""
        return map(InvitationView.model_validate, self._wire.pages("/v1/invitations"))

    def withdraw_invitation(self, invitation: str) -> InvitationView:
        """End an invitation that waits."""
        return InvitationView.model_validate(self._wire.send("DELETE", f"/v1/invitations/{invitation}").json())

    def accept_invitation(self, token: str, name: str) -> AcceptedView:
        """Become a principal by the token of an invitation; no key is needed, and the first one is in the answer."""
        body = {"token": token, "name": name}
        return AcceptedView.model_validate(self._wire.send("POST", "/v1/join", sends=1, json=body).json())
