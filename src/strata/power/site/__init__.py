"""The site's power limit, kept by one controller: the governor that runs a policy on the fleet."""
