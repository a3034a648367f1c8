# SPDX-License-Identifier: Apache-2.0
"""Whether a test that a table or a document names exists: `test_retries::test_name` is a scenario,
`core/test_backoff::name` a unit test that its program really runs, `store/conformance::name` one over every store."""
import ast
import functools
import pathlib
import re

SCENARIOS = pathlib.Path(__file__).resolve().parents[1]
TESTS = SCENARIOS.parent


@functools.lru_cache(maxsize=None)
def _tests_of(file):
    if not file.is_file():
        return frozenset()
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".c":
        return frozenset(re.findall(r"cmocka_unit_test(?:_\w+)?\((\w+)", text))
    return frozenset(node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))


def names_a_test(name):
    place, _, test = name.partition("::")
    if "/" in place:
        files = [TESTS / "unit" / f"{place}.c", TESTS / f"{place}.c"]
    else:
        files = SCENARIOS.rglob(f"{place}.py")
    return any(test in _tests_of(file) for file in files)
