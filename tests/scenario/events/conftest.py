# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the stories about events: a gateway with an API and an inbox, in front of one server that is endpoint and
application at once."""
import pytest

from harness import Hooks

SOURCES = """
inbox:
  listen: 127.0.0.1:0
sources:
  - {name: github, scheme: github, secret_env: GITHUB_SECRET, deliver: "%(app)s/app/github"}
  - {name: strict, scheme: standard, secret_env: STANDARD_SECRET, strict: true, deliver: "%(app)s/app/strict"}
  - {name: waits, scheme: standard, secret_env: STANDARD_SECRET, ack: processed, deliver: "%(app)s/app/waits"}
  - {name: once, scheme: standard, secret_env: STANDARD_SECRET, guarantee: none, timeout: 1s,
     deliver: "%(app)s/app/once"}
"""


@pytest.fixture
def start_hooks(start_api, upstream):
    """start_hooks(config, ...): a running gateway with an API and sources; `store` says which store it has."""
    def start(config="events: {allow: [127.0.0.0/8]}", **options):
        env = {**Hooks.SECRETS, **options.pop("env_more", {})}
        return Hooks(start_api(config + SOURCES % {"app": upstream.url}, env=env, **options), upstream)

    return start


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("database").url
    return f"{request.param}:{tmp_path}/events"


@pytest.fixture
def hooks(start_hooks, tmp_path):
    return start_hooks(store=f"journal:{tmp_path}/events")
