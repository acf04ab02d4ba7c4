"""What jobs cost: to start in a container, by each runtime that is here.

    .venv/bin/python bench/jobs.py --json

``unshare_ms`` is the least that a container can cost; ``RUNTIME_ratio_to_unshare`` what each takes of it.
"""

from __future__ import annotations

from jobs_runtimes import ratios
from measure import arguments, main, scratch, show


def run() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--starts", type=int, default=100)
    options = parser.parse_args()
    with scratch() as directory:
        show(ratios(directory, options.starts), as_json=options.json)


if __name__ == "__main__":
    main(run)
