"""A machine of its own for every test: no data of the user's, no publisher's, no proxy."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedsac.data.published import registry


@pytest.fixture(autouse=True)
def own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user cache of this test; nothing else is set."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.delenv("FEDSAC_DATA", raising=False)
    # Port 9 (discard) on this machine: a forgotten download is refused at once instead of going out.
    monkeypatch.setenv("FEDSAC_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(registry, "cache_folder", lambda: home)
    monkeypatch.setattr("fedsac.data.published.fetch.cache_folder", lambda: home)
    for name, wanted in registry.PUBLISHED.items():
        monkeypatch.setitem(registry.PUBLISHED, name, replace(wanted, system=None))
    return home
