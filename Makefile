# Everything that one does with Strata, each target doing the set-up that it needs. `make` lists them.
# Works on a fresh Debian 12 machine as root; without root if the Debian packages are there already.

SHELL := /bin/bash
PY := .venv/bin/python
# All that the code, the tests and the benchmarks start, beside what Debian requires; tests/fresh holds them to it.
PACKAGES := python3-venv nginx-light etcd-server etcd-client graphviz ipmitool curl openssl \
  postgresql slurmctld slurmd slurm-wlm-basic-plugins slurm-client munge slurmdbd mariadb-server \
  python3-distributed \
  gridengine-master gridengine-exec gridengine-client \
  environment-modules \
  qemu-system-x86 qemu-system-arm qemu-efi-aarch64 seabios ovmf ipxe-qemu iproute2 xorriso \
  ipxe mtools grub-common grub-pc-bin grub-efi-amd64-bin cpio wrk \
  squashfs-tools mmdebstrap slirp4netns zstd buildah docker-registry busybox-static crun \
  charliecloud bubblewrap podman runc proot uidmap \
  gcc libc6-dev libslurm-dev libopenmpi3 openmpi-bin libpmix-dev \
  tftpd-hpa radvd kea-admin kea-dhcp4-server dhcping openssh-client openssh-server procps git cloud-init \
  prometheus \
  chromium
# While it is there, Debian starts no daemon that it installs, and sets up no Grid Engine: we start our own, elsewhere.
NO_START := /usr/sbin/policy-rc.d
WEB := src/strata/dashboard/web
WEB_FILES := $(shell find $(WEB) -type f -not -path '*/node_modules/*')
# Node.js is a wheel in .venv, and is found there by npm's own scripts too. What is installed runs nothing by itself.
NPM := PATH="$(CURDIR)/.venv/bin:$$PATH" npm --prefix $(WEB) --loglevel=error --no-audit --no-fund --ignore-scripts
SEEDS ?= 1000
SEED ?= 1
NODES ?= 256

.DEFAULT_GOAL := help
.PHONY: help packages native dashboard setup up up-simulated down
.PHONY: test test-fast test-late test-fresh test-deb lint sim bench
.PHONY: docs tutorial tutorial-simulated pictures deb lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# Looked at every time: a package may have been named since, or removed.
packages:
	@there=" $$(dpkg-query -Wf '$${db:Status-Status} $${Package}\n' $(PACKAGES) 2>/dev/null | sed -n 's/^installed //p' | tr '\n' ' ')"; \
	missing=; for package in $(PACKAGES); do [[ $$there == *" $$package "* ]] || missing+=" $$package"; done; \
	[ -n "$$missing" ] || exit 0; \
	[ "$$(id -u)" = 0 ] || { echo "missing Debian packages; as root: apt-get install$$missing" >&2; exit 1; }; \
	echo "installing Debian packages:$$missing ..."; apt-get -qq update && made=; \
	[ -e $(NO_START) ] || { made=1; printf '#!/bin/sh\nexit 101\n' > $(NO_START); chmod +x $(NO_START); }; \
	echo "gridengine-common shared/gridengineconfig boolean false" | debconf-set-selections; \
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $$missing; status=$$?; \
	[ -z "$$made" ] || rm -f $(NO_START); exit $$status

.venv/.ready: requirements.lock pyproject.toml Makefile | packages
	[ -x $(PY) ] || /usr/bin/python3 -m venv .venv
	$(PY) -m pip -q install --disable-pip-version-check --require-hashes -r requirements.lock
	$(PY) -m pip -q install --disable-pip-version-check --no-deps -e .
	@touch $@

native: packages  ## Build the container runner and what schedulers load of it, where the sources are newer
	@$(MAKE) -s -C src/strata/jobs/native

$(WEB)/node_modules/.package-lock.json: $(WEB)/package.json $(WEB)/package-lock.json .venv/.ready
	$(NPM) ci
	@touch $@

src/strata/dashboard/static/index.html: $(WEB)/node_modules/.package-lock.json $(WEB_FILES)
	$(NPM) run build

dashboard: src/strata/dashboard/static/index.html  ## Build the dashboard's files, where its sources are newer

setup: packages .venv/.ready native dashboard  ## Install Debian packages, make .venv, build the C programs and the dashboard

up: setup  ## Start Strata here with four virtual machines and a Slurm on them (as root), and show where to look
	.venv/bin/strata up --virtual

up-simulated: setup  ## The same with a simulated fleet (NODES=256); needs no root
	.venv/bin/strata up --simulated --nodes $(NODES)

down: setup  ## Stop it and keep what is there for the next make up; to delete all of it: .venv/bin/strata down --delete
	.venv/bin/strata stop

lint: setup  ## Style, types, layers
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

test-fast: setup  ## Tests without servers, under 90 seconds
	.venv/bin/pytest -q -n 2 -m "not slow and not server"

test: setup lint  ## All tests, as CI runs them; some of them: make test TESTS=tests/core; STEADY=1: none may need a second run
	$(PY) tests/whole.py $(if $(STEADY),--steady) $(TESTS)

test-late: setup  ## All tests while everything comes late by chance, to find races: make test-late SEED=7
	.venv/bin/pytest -q -n 6 --dist loadfile --no-loadscope-reorder --late $(SEED)

test-fresh: setup  ## Both commands of the README on a Debian 12 that has nothing yet (as root): CONTRIBUTING says how to run less
	$(PY) tests/fresh/run.py $(ONLY) $(if $(TESTS),--tests "$(TESTS)") $(if $(KEEP),--keep "$(KEEP)")

sim: setup  ## The whole controller under seeded faults in virtual time: make sim SEEDS=1000
	$(PY) tests/simulation/run.py --seeds $(SEEDS)

bench: setup  ## Benchmarks; each prints one JSON object
	$(PY) bench/converge.py --nodes 10000 --json
	$(PY) bench/converge.py --nodes 100000 --json
	$(PY) bench/converge.py --nodes 10000 --sockets --json
	$(PY) bench/fleet.py --nodes 20000 --json
	$(PY) bench/hardware.py --json
	$(PY) bench/hardware.py --discover 10000 --json
	$(PY) bench/plan.py --nodes 100000 --json
	$(PY) bench/rollout.py --nodes 10000 --json
	$(PY) bench/api.py --json
	$(PY) bench/store.py --json
	$(PY) bench/capmc.py --nodes 20000 --json
	$(PY) bench/capmc.py --nodes 100000 --json
	$(PY) bench/telemetry.py --json
	$(PY) bench/policy.py --json
	$(PY) bench/workload.py --json
	$(PY) bench/jobs.py --json
	$(PY) bench/accelerators.py --json
	$(PY) bench/boot.py --json
	$(PY) bench/config.py --json
	$(PY) bench/dashboard.py --json
	$(PY) bench/peers.py --json

tutorial: setup  ## Run the tutorial as it is written, on virtual machines (as root)
	$(PY) tests/docs/tutorial.py --cluster virtual

tutorial-simulated: setup  ## The same with a simulated fleet; needs no root
	$(PY) tests/docs/tutorial.py --cluster simulated

deb: setup  ## Make the Debian package, in dist
	$(PY) deploy/deb.py --out dist

test-deb: setup  ## On a Debian 12 that has nothing yet: bring a fleet up with the last release's package, upgrade to this one (as root)
	$(PY) tests/fresh/package.py $(if $(KEEP),--keep "$(KEEP)") $(if $(FROM),--from "$(FROM)")

pictures: setup  ## Make the pictures of the dashboard and the terminal in the documentation
	STRATA_PICTURES=docs/pictures .venv/bin/pytest -q tests/dashboard/test_dashboard.py
	STRATA_PICTURES=docs/pictures .venv/bin/pytest -q tests/docs/test_docs_commands.py -k pictured

docs: setup  ## Make the reference pages from the code, and a site of all pages in dist/site
	$(PY) docs/generate.py
	$(PY) -m sphinx -q -W --keep-going -b html -d dist/doctrees docs dist/site
	@echo "the site: $(CURDIR)/dist/site/index.html"

lock: setup  ## Pin the newest versions that pyproject.toml allows, with hashes
	.venv/bin/pip-compile -q --extra dev --extra docs --extra postgres --extra ipmi --extra plot --extra delivery \
	  --extra secrets \
	  --extra vault \
	  --extra oidc \
	  --extra playbooks \
	  --generate-hashes \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-annotate --strip-extras --allow-unsafe \
	  --no-header -o requirements.lock pyproject.toml

clean:  ## Remove what was built here
	rm -rf src/strata/jobs/native/built dist src/strata/dashboard/static $(WEB)/node_modules
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
