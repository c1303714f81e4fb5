# Short names for the scripts; each sets up .venv first where it isn't there.
venv := $(or $(RLTRAIN_VENV),.venv)

.PHONY: setup quickstart test lint format docs

setup:
	scripts/setup.sh

quickstart:
	scripts/quickstart.sh

test:
	scripts/test.sh

lint: setup
	$(venv)/bin/ruff check .
	$(venv)/bin/ruff format --check .
	$(venv)/bin/pyright --pythonpath $(venv)/bin/python
	PATH="$(venv)/bin:$$PATH" lint-imports --no-logo

format: setup
	$(venv)/bin/ruff check --fix .
	$(venv)/bin/ruff format .

docs: setup
	$(venv)/bin/python scripts/write_config_reference.py
