"""Which local account the jobs of somebody run as who came by the site's own login."""

from __future__ import annotations

import pytest

from strata.core.errors import Denied
from strata.fleet.access.principal import Principal
from strata.jobs.accounts import LocalAccounts


def test_a_rule_of_the_provider_gives_an_account_and_nothing_else_does() -> None:
    accounts = LocalAccounts({"oidc:*": "*", "*": "*"}, 1000, own=0)
    ada = Principal(name="oidc:ada", role="user", via="oidc", account="ada")
    assert accounts.name_of(ada) == "ada"
    with pytest.raises(Denied, match="oidc:root has no account here"):
        accounts.name_of(Principal(name="oidc:root", role="user", via="oidc"))
