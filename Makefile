# Everything is done by dev.py, which also works where there is no make (Windows): python3 dev.py help
PYTHON ?= python3

.PHONY: help install check format test fast live bench serve wheel clean
help install check format test fast live bench serve wheel clean:
	@$(PYTHON) dev.py $@
