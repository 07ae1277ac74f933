# Five verbs, and what they share. All run in the environment that bootstrap.py makes.
IN := python3 bootstrap.py run

.PHONY: fmt lint test scenarios bench serve docs lock

fmt:  ## Format, and fix what can be fixed by itself.
	$(IN) ruff format
	$(IN) ruff check --fix

lint:  ## Style, types, imports, generated documents, locks.
	$(IN) ruff format --check
	$(IN) ruff check
	$(IN) mypy
	$(IN) mypy bootstrap.py tools
	$(IN) pyright
	$(IN) lint-imports --no-logo
	$(IN) python tools/locks.py --check
	$(IN) python -m protocol.schema --check
	$(IN) python -m server.rest.openapi --check
	$(IN) python tools/readme.py --check

test:  ## All tests; choose some with ARGS="tests/cli -k settings".
	python3 bootstrap.py test $(ARGS)

scenarios:  ## The black-box suite against a server started for it; ARGS="-k WS-CONN-01".
	$(IN) python tools/scenarios.py -j 8 $(ARGS)

bench:  ## Measure; see benchmarks/.
	$(IN) python -m benchmarks $(ARGS)

serve:  ## Run the server.
	python3 bootstrap.py serve $(ARGS)

docs:  ## Write the generated documents.
	$(IN) python -m protocol.schema
	$(IN) python -m server.rest.openapi
	$(IN) python tools/readme.py

lock:  ## Write requirements/ (needs uv); ARGS=--upgrade for newer versions.
	$(IN) python tools/locks.py $(ARGS)
