"""Says which tests could not run, in the form that `make test` collects."""

from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("skipped", []):
        # File, line and reason.
        place: Any = report.longrepr
        reason = str(place[2])
        terminalreporter.write_line(f"SKIPPED: {report.nodeid}: {reason.removeprefix('Skipped: ')}")
