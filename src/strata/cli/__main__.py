"""``python -m strata.cli``: the strata command, where no script is installed."""

from strata.cli.main import main

main()
