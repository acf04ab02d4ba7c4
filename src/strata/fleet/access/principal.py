"""Who asks, and what each role may do: one table. Knows nothing of tokens, certificates or HTTP.

A *right* is a verb on a kind of thing (``read node``). Whatever the table does not name is denied to all but
administrators of the whole fleet.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from strata.core.errors import Denied

Role = Literal["viewer", "operator", "admin", "node", "workload-manager", "user"]
ROLES: tuple[Role, ...] = get_args(Role)

Verb = Literal["read", "create", "change", "delete"]
VERBS: tuple[Verb, ...] = get_args(Verb)

KINDS = frozenset((
    "node", "desire", "document", "hold", "freeze", "group", "operation", "audit", "credential", "store", "model",
    "status", "metrics", "log-level", "self", "hardware", "bmc", "bmc-credential", "alert", "webhook", "boot",
    "console", "emergency", "exec", "image", "image-content", "personality", "power", "power-policy", "power-queue",
    "unknown-machine", "workload", "config", "secret", "health", "flow", "rollout", "slurm-files",
    "environment", "project",
    "job", "others-job", "reservation",
))  # fmt: skip
"""What the table knows. A room may have a kind of its own; until the table says more, it is the administrators'."""


class Right(msgspec.Struct, frozen=True):
    """One verb on one kind of thing."""

    verb: Verb
    kind: str

    def __str__(self) -> str:
        return f"{self.verb} {self.kind}"


def _rights(verbs: tuple[Verb, ...], *kinds: str) -> frozenset[Right]:
    return frozenset(Right(verb, kind) for verb in verbs for kind in kinds)


_LOOK = _rights(
    ("read",),
    "node", "desire", "document", "hold", "freeze", "group", "operation", "model", "status", "metrics", "log-level",
    "self", "hardware", "bmc", "alert", "boot", "image", "personality", "power", "power-policy", "power-queue",
    "unknown-machine", "workload", "config", "health", "flow", "rollout", "slurm-files",
    "environment", "project", "reservation",
)  # fmt: skip

RIGHTS: dict[Role, frozenset[Right]] = {
    "viewer": _LOOK,
    "operator": _LOOK
    | _rights(("create", "change", "delete"), "desire", "hold", "freeze", "operation", "rollout", "environment")
    | _rights(("change",), "bmc", "alert", "power", "power-queue", "image", "console")
    | _rights(("create",), "emergency", "health", "flow")
    # What is kept for some is kept from the others: for whoever runs the machine to say.
    | _rights(("create", "delete"), "reservation")
    # What a command prints is for whoever may run one.
    | _rights(("create", "read", "delete"), "exec")
    # Jobs of others are seen and ended by whoever runs the machine. What they hold stays their owners'.
    | _rights(VERBS, "job")
    | _rights(("read", "change", "delete"), "others-job")
    # What a console prints may hold secrets of the jobs on it: not for everybody who may look.
    # What an image holds, too.
    | _rights(("read",), "audit", "console", "emergency", "image-content"),
    "admin": _rights(VERBS, *KINDS),
    # A node knows only itself: it sees who it is, and that the service is there.
    "node": _rights(("read",), "self"),
    # A workload manager looks at nodes, takes broken ones out of (and back into) automation, switches and caps them.
    "workload-manager": _rights(
        ("read",), "node", "hold", "group", "operation", "model", "status", "metrics", "self", "power"
    )
    | _rights(("create", "delete"), "hold")
    | _rights(("change",), "power")
    | _rights(("read", "change"), "power-queue"),
    # Somebody who runs jobs: their own, and nothing of the fleet.
    "user": _rights(VERBS, "job", "environment") | _rights(("read",), "self", "project", "reservation"),
}
"""Which role may do what. The only place that says so."""

FLEET_WIDE: frozenset[Right] = (
    _rights(
        ("create", "change", "delete"),
        "node", "document", "group", "credential", "store", "log-level", "hardware", "bmc-credential", "webhook",
        "image", "personality", "boot",
        "power-policy", "workload", "config", "model", "project", "reservation",
    )
    # Their checks may be run by whoever may change nodes; what is checked is said for all.
    | _rights(("change", "delete"), "health", "flow")
    # A cluster's files name all its nodes.
    | _rights(("read",), "audit", "credential", "store", "bmc-credential", "webhook", "metrics", "slurm-files")
    # A machine that nobody knows is in no group, nor is a job that waits.
    # Whom secrets are for tells of all groups; so do jobs of others.
    | _rights(VERBS, "unknown-machine", "power-queue", "secret", "others-job")
)  # fmt: skip
"""Rights that reach beyond any group: a credential with a scope never has them."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who asks: a person, a service, a node. ``scope`` names groups; empty is the whole fleet."""

    name: str
    role: Role
    scope: tuple[str, ...] = ()
    via: Literal["socket", "token", "certificate", "password", "oidc"] = "socket"
    credential: str = ""
    """The token's id, the certificate's serial, the account or the provider's name of a person: what one would revoke.
    Never a secret."""
    account: str = ""
    """Local account that a rule of an OpenID Connect provider gives them for their jobs; empty: none does."""

    def may(self, right: Right) -> bool:
        """Whether the table grants ``right``."""
        granted = right in RIGHTS[self.role] or (self.role == "admin" and right.kind not in KINDS)
        return granted and not (self.scope and _fleet_wide(right))

    def require(self, right: Right) -> None:
        """Raise ``Denied`` unless the table grants ``right``."""
        if not self.may(right):
            limit = f" limited to {', '.join(self.scope)}" if self.scope and _fleet_wide(right) else ""
            raise Denied(
                f"the role {self.role}{limit} lacks the right to {right}",
                where=self.name,
                hint="ask an administrator for a credential with that right",
            )


def _fleet_wide(right: Right) -> bool:
    return right in FLEET_WIDE or right.kind not in KINDS


LOCAL_ADMIN = Principal(name="local-admin", role="admin")
"""Whoever may open the admin socket."""
