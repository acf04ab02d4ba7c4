"""Opens what the fleet knows of those who ask."""

from __future__ import annotations

from strata.fleet.access.accounts import Accounts
from strata.fleet.access.authority import Authority
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.logins import Logins
from strata.fleet.access.oidc.tokens import OidcTokens
from strata.fleet.access.sealing import Seal
from strata.fleet.access.sessions import Sessions
from strata.fleet.fleet import Fleet


async def open_access(fleet: Fleet, authority: Authority) -> None:
    """Who may ask: tokens, certificates, accounts, sessions; and the key that seals secrets in the store."""
    fleet.put(authority)
    fleet.put(Seal.load(fleet.settings.secrets_key, make=not fleet.settings.store.secrets_key))
    told = fleet.settings.oidc
    oidc = OidcTokens(told) if told.issuer else None
    authenticator = await fleet.keep(Authenticator(fleet.store, fleet.ledger, oidc=oidc))
    accounts, sessions = Accounts(fleet.store, fleet.ledger), Sessions(fleet.store, fleet.ledger)
    fleet.put(authenticator)
    fleet.put(await fleet.keep(Logins(accounts, sessions, authenticator)))
