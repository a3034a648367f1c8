# SPDX-License-Identifier: Apache-2.0
"""Several gateways of one machine on one SQLite file: the stories of test_postgres.py, which are about any store that
gateways share."""
import pytest

from test_postgres import *  # noqa: F401,F403  the stories themselves, and what they stand on


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/store.db"
