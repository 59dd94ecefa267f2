"""Options of a load: whose choice wins, what is refused, what differs from the loaded model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine import engine_options
from engine.engine_options import OPTIONS, Adapter, EngineOptions
from engine.errors import InvalidRequest
from engine.load_request import differences, embedding_request, load_request
from engine.settings import Settings
from engine.worker import protocol


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "settings.json")


def test_every_option_is_described_and_is_a_field_of_a_load() -> None:
    assert set(OPTIONS) == set(EngineOptions.__struct_fields__)
    assert set(OPTIONS) <= set(protocol.Load.__struct_fields__)
    for name, option in OPTIONS.items():
        assert option.label and option.doc.endswith("."), name
        assert option.label[0].isupper()


def test_the_nearest_choice_wins(settings: Settings) -> None:
    settings.engine = EngineOptions(n_ctx=1024, n_threads=3, flash_attention="off", use_mmap=False)
    settings.model_engine = {"/m.gguf": EngineOptions(n_ctx=2048, n_ubatch=128)}
    request, chosen = load_request(settings, "r", "/m.gguf", {"n_ubatch": 64, "n_batch": None})
    assert (request.n_ctx, request.n_ubatch, request.n_threads) == (2048, 64, 3)
    assert (request.flash_attention, request.use_mmap, request.n_batch) == ("off", False, 2048)
    assert chosen == {"n_ctx", "n_ubatch", "n_threads", "flash_attention", "use_mmap"}
    other, _ = load_request(settings, "r", "/other.gguf", {})
    assert (other.n_ctx, other.n_ubatch) == (1024, 512)
    plain, chosen = load_request(Settings(settings.path.with_name("none.json")), "r", "/m.gguf", {})
    assert plain == protocol.Load(id="r", path="/m.gguf") and not chosen


def test_a_quantized_v_cache_without_flash_attention_is_refused_wherever_they_meet(settings: Settings) -> None:
    settings.engine = EngineOptions(flash_attention="off")
    settings.model_engine = {"/m.gguf": EngineOptions(kv_type_v="q4_0")}
    with pytest.raises(InvalidRequest) as caught:
        load_request(settings, "r", "/m.gguf", {})
    assert "Q4_0" in caught.value.message and "flash attention" in caught.value.message and caught.value.hint
    assert caught.value.details["field"] == "kv_type_v"
    load_request(settings, "r", "/m.gguf", {"flash_attention": "auto"})
    load_request(settings, "r", "/m.gguf", {"kv_type_v": "f16"})
    load_request(settings, "r", "/other.gguf", {"kv_type_k": "q8_0"})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"n_ctx": 0}, "n_ctx"),
        ({"n_threads": 5000}, "n_threads"),
        ({"n_batch": -1}, "n_batch"),
        ({"kv_type_k": "q9"}, "kv_type_k"),
        ({"flash_attention": "maybe"}, "flash_attention"),
        ({"tensor_split": (1.0, -2.0)}, "tensor_split"),
        ({"adapters": (Adapter("/a", 11.0),)}, "adapters"),
        ({"adapters": (Adapter("/a"), Adapter("/a"))}, "adapters"),
    ],
)
def test_what_no_load_could_have(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        engine_options.check(EngineOptions(**options))
    assert caught.value.details["field"] == field


def test_what_a_reload_would_change(settings: Settings) -> None:
    loaded, _ = load_request(settings, "1", "/m.gguf", {})
    assert differences(loaded, load_request(settings, "2", "/m.gguf", {})[0]) == ()
    settings.engine = EngineOptions(n_threads=2, n_ctx=512)
    assert differences(loaded, load_request(settings, "2", "/m.gguf", {})[0]) == ("n_ctx", "n_threads")
    assert differences(loaded, load_request(settings, "2", "/other.gguf", {})[0]) == (), "another model is no reload"
    with_one = msgspec.structs.replace(loaded, adapters=(Adapter("/a", 1.0),))
    rescaled = msgspec.structs.replace(loaded, adapters=(Adapter("/a", 0.5),))
    assert differences(with_one, rescaled) == ()
    assert differences(loaded, rescaled) == ("adapters",)


def test_settings_of_chats_do_not_hold_for_embeddings(settings: Settings) -> None:
    settings.engine = EngineOptions(n_ctx=32768, n_threads=3, kv_type_k="q8_0", n_slots=1)
    request, chosen = embedding_request(settings, "r", "/m.gguf", {"n_gpu_layers": 0})
    assert request.embeddings and request.n_ctx is None and request.kv_type_k == "f16"
    assert (request.n_threads, request.n_gpu_layers) == (3, 0) and request.n_slots > 1
    assert "embeddings" not in chosen and {"n_threads", "n_gpu_layers"} <= chosen


def test_plain_data_becomes_options() -> None:
    made = engine_options.from_mapping({"n_ctx": 512, "adapters": [{"path": "/a"}], "tensor_split": [1, 2]})
    assert made == EngineOptions(n_ctx=512, adapters=(Adapter("/a"),), tensor_split=(1.0, 2.0))
    for bad in ({"n_ctx": "512"}, {"adapters": "/a"}, {"use_mmap": 1}, {"n_ctx": 1.5}):
        with pytest.raises(InvalidRequest):
            engine_options.from_mapping(bad)
