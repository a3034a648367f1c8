# SPDX-License-Identifier: Apache-2.0
"""docs/STATES.md says which test proves each row of its crash matrix: each of them is there."""
import pathlib
import re

from harness.names import names_a_test

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "STATES.md"


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`([\w/]+::\w+)`", PAGE.read_text(encoding="utf-8")))
    assert len(named) > 40
    missing = sorted(name for name in named if not names_a_test(name))
    assert not missing, f"docs/STATES.md names tests that don't exist: {missing}"


def test_every_row_of_the_matrix_names_a_test():
    matrix = PAGE.read_text(encoding="utf-8").partition("## The crash matrix")[2].partition("\n## ")[0]
    rows = [line for line in matrix.splitlines() if line.startswith("| ") and not line.startswith("| what fails, and")]
    assert len(rows) > 30
    for row in rows:
        assert "::" in row.rsplit("|", 2)[1], f"no test in this row: {row}"
