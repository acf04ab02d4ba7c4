"""Who may do what: roles and rights, tokens, client certificates, accounts, login sessions; how secrets are kept."""

from strata.core.room import Room

ROOM = Room(
    routes=("strata.fleet.access.routes",),
    commands={
        "The service": {
            "auth": "strata.fleet.access.commands:auth",
            "login": "strata.fleet.access.oidc.commands:login",
            "logout": "strata.fleet.access.oidc.commands:logout",
        }
    },
)
