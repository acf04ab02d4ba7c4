"""Who may do what: roles and rights, tokens, client certificates, accounts, login sessions; how secrets are kept."""

from strata.core.room import Room

ROOM = Room(
    routes=(".routes",),
    commands={
        "The service": {"auth": ".commands:auth", "login": ".oidc.commands:login", "logout": ".oidc.commands:logout"}
    },
)
