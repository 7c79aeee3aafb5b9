# Every target sets up what it needs; `make help` lists them.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3
PYTHON ?= $(shell for one in $(PYTHONS); do $$one -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$one && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
KERNELS := core/native/kernels.so
WORKERS ?= 3
XDIST = -n $(WORKERS) --dist worksteal # tests wait for processes a third of the time; neighbours share what they start
PYTEST = $(BIN)/python -m pytest --durations=10
LONG := slow or nightly or timing

.DEFAULT_GOAL := help
SECRETS := $(addprefix .stack/,database_password redis_password master_key signing_key admin_key)
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)

.PHONY: help setup assets chromium demo serve notebooks stack stack-stop test test-service test-nightly test-gpu test-studies test-stack check check-code bench migrate clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) $(KERNELS) ## make the virtual environment with everything in it
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "Python 3.11 or later is needed: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing some 200 packages into $(VENV): minutes, and 2 GB of disk; with CUDA a few times that."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[dev]'
	@touch $@
$(KERNELS): $(STAMP) $(wildcard core/native/*.c core/native/*.py) # none without a C compiler: then NumPy does their work
	@$(BIN)/python -m core.native.build

demo: setup ## the main job, end to end, on the bank data (KEEP=1 leaves the console open afterwards)
	KEEP=$(KEEP) $(BIN)/python -m examples.bank_demo

serve: setup ## the service on http://127.0.0.1:8000, its home in .farthing (FARTHING_HOME, FARTHING_PORT: others)
	$(BIN)/farthing up --home "$${FARTHING_HOME:-.farthing}"

stack: $(SECRETS) .stack/tls ## the whole service in containers: PostgreSQL, Redis, API, proxy, worker (docs/guides/operator/run-in-containers.md)
	DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1 $(COMPOSE) up --detach --build
	@echo "Farthing answers on https://localhost:$${FARTHING_PORT:-8443}; the first admin key is in .stack/admin_key"

$(SECRETS): # made once; the folder keeps others out, the files are read by the containers' own users
	@mkdir -p -m 0700 .stack
	@head -c 32 /dev/urandom | base64 > $@.new && chmod 0444 $@.new && mv $@.new $@

.stack/tls: # signed by itself: put your own certificate and key there for a name of your own
	@mkdir -p -m 0700 .stack
	@openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=localhost \
		-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout $@.key -out $@.crt 2>/dev/null
	@cat $@.crt $@.key > $@.new && rm $@.key && chmod 0444 $@.new && mv $@.new $@

stack-stop: ## stop the containers; their volumes stay
	$(COMPOSE) --profile gpu down

test: setup ## unit tests, laws, and a pass of each path of the service (some 11 minutes on 2 cores)
	$(PYTEST) $(XDIST) -m 'not ($(LONG) or service)'

chromium: # the browser of the console's tests, installed where apt may; else they say how
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq chromium; } || echo "The console's tests need a browser: apt-get install chromium" >&2

assets: setup ## fetch the console's scripts that others wrote, at their fixed versions
	$(BIN)/python -m api.pages.vendor

test-service: setup chromium ## real processes: whole services, kills, races, federations, the console in a browser, PostgreSQL
	$(PYTEST) $(XDIST) -m 'service and not ($(LONG))'

test-nightly: setup ## long statistics and kills, then clocks, one after the other; PART=tests/workers: a part of it
	$(PYTEST) $(XDIST) -m 'slow or nightly' $(PART)
	$(PYTEST) -n0 -m 'timing' $(PART)

test-studies: setup ## the papers' experiments: minutes without `slow` (PART="-m 'not slow'"), many hours with it
	$(BIN)/python -m pytest $(XDIST) $(PART) studies/tests

test-stack: setup ## build the images, and the integration tests against the running stack (docs/guides/operator/run-in-containers.md)
	$(BIN)/python -m tests.stack

check: check-code ## the same, and links between pages
	$(BIN)/zensical build --strict --config-file zensical.toml

check-code: setup ## lint, types, import contracts, unused dependencies, plain words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m tests.support.prose

docs: setup ## the pages as a site with search, in .pages/index.html
	$(BIN)/zensical build --config-file zensical.toml

notebooks: setup ## run the notebooks of examples/notebooks on a service of their own, and store them with their outputs
	$(BIN)/python -m examples.notebooks

test-gpu: setup ## laws of questions, sums and oracles on CUDA (PART="sums networks laws looks oracles": some of them)
	$(BIN)/python -m tests.support.gpu $(PART)

bench: setup ## every benchmark, a table each; then the goals of the papers' methods
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks studies/benchmarks

migrate: setup ## bring the database named by FARTHING_DATABASE_URL up to date
	$(BIN)/python -m alembic --config migrations/alembic.ini upgrade head

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
