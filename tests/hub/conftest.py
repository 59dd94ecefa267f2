"""A hub on loopback, downloads with short waits, and no setting of the machine that could reach them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "engine"))

from hub_help import QUICK
from hub_server import Hub

from engine.models import hub as engine_hub
from engine.models.download import Downloads


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy, token or mirror of the machine; Hugging Face's own folder is a throw-away one."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setattr(engine_hub.hub_token, "keyring_module", lambda: None)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


@pytest.fixture
def downloads(hub: Hub, models: Path) -> Iterator[Callable[..., Downloads]]:
    """Makes the queue of downloads for the hub; all are closed in the end."""
    made: list[Downloads] = []

    def make(token: str | None = None, **options: Any) -> Downloads:
        client = engine_hub.Hub(hub.endpoint, token=lambda: token)
        made.append(Downloads(models, client, policy=options.pop("policy", QUICK), **options))
        return made[-1]

    yield make
    for queue in made:
        queue.close()
