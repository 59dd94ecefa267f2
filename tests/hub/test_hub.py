"""Search, listing, names of quantizations and headers from afar."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from gguf_maker import small_model
from hub_help import client, put
from hub_server import COMMIT, Call, Hub, Repo, Stored

from engine.errors import HubAccessDenied, HubNotFound, HubUnreachable, InvalidRequest, ModelFileDamaged, NotAModel
from engine.models import hub_names, hub_token
from engine.models.hub import Hub as Client
from engine.models.hub_names import HubFile


def test_search_pages_and_rows(hub: Hub) -> None:
    for n in range(7):
        hub.repos[f"ann/llama-{n}"] = Repo({}, downloads=100 - n, gated="auto" if n == 0 else False)
    hub.repos["ann/other"] = Repo({}, downloads=1)
    hub.repos["ann/llama-safetensors"] = Repo({}, tags=["safetensors"])
    hub.repos["ann/llama-0"].gguf = {"total": 8_000_000_000, "architecture": "llama", "context_length": 8192}
    search = client(hub).search
    page = search("LLAMA", "downloads", 3)
    assert [row.repo for row in page.rows] == ["ann/llama-0", "ann/llama-1", "ann/llama-2"] and page.next
    first = page.rows[0]
    assert (first.gated, first.n_params, first.architecture, first.n_ctx_train) == (True, 8_000_000_000, "llama", 8192)
    assert (first.license, first.author, first.downloads) == ("apache-2.0", "ann", 100)
    names = [row.repo for row in page.rows]
    while page.next:
        page = search("LLAMA", "downloads", 3, page.next)
        names += [row.repo for row in page.rows]
    assert names == [f"ann/llama-{n}" for n in range(7)]
    with pytest.raises(InvalidRequest):
        search("x", "colour")  # type: ignore[arg-type]


def test_a_next_link_to_elsewhere_is_not_followed(hub: Hub) -> None:
    put(hub)

    def lead_away(call: Call) -> None:
        if call.path.startswith("/api/models?"):
            call.answer["Link"] = f'<{hub.storage}/steal?cursor=MA%3D%3D>; rel="next"'

    hub.faults.append(lead_away)
    asking = client(hub, "hf_good_token_123")
    page = asking.search("tiny")
    asking.search("tiny", cursor=page.next)
    assert page.next == "MA==" and all(where == "hub" for where, _, _ in hub.calls)


def test_info_gives_sets_sizes_and_hashes(hub: Hub) -> None:
    put(hub, 3000, card={"license": "mit"})
    hub.repos["ann/tiny"].files["README.md"] = Stored(b"# Tiny", lfs=False)
    hub.repos["ann/tiny"].extra_names = ["../../evil-Q4_0.gguf", ".gitattributes"]
    info = client(hub).info("ann/tiny")
    assert (info.revision_sha, info.license, info.gated) == (COMMIT, "mit", False)
    (one,) = info.sets
    stored = hub.repos["ann/tiny"].files["Tiny-Q4_K_M.gguf"]
    assert one.label == "Q4_K_M" and one.files == (HubFile("Tiny-Q4_K_M.gguf", 3000, stored.sha256),)
    assert info.refused == ("../../evil-Q4_0.gguf",)
    assert client(hub).card("ann/tiny") == "# Tiny"


def test_sizes_from_the_tree_where_the_listing_has_none(hub: Hub) -> None:
    put(hub, 3000)
    hub.repos["ann/tiny"].hide_sizes = True
    (file,) = client(hub).info("ann/tiny").files
    assert file.size_bytes == 3000 and file.sha256 == hub.repos["ann/tiny"].files[file.path].sha256


@pytest.mark.parametrize(
    ("repo", "token", "error"),
    [
        ("ann/none", None, HubNotFound),
        ("ann/private", None, HubNotFound),
        ("ann/tiny", "hf_wrong_token", HubAccessDenied),
    ],
)
def test_errors_of_listings(repo: str, token: str | None, error: type[Exception], hub: Hub) -> None:
    put(hub)
    hub.repos["ann/private"] = Repo({}, private=True)
    with pytest.raises(error) as caught:
        client(hub, token).info(repo)
    assert "hf_wrong" not in str(caught.value.__dict__)
    assert client(hub, "hf_good_token_123").info("ann/private").private


@pytest.mark.parametrize(
    "act",
    [
        lambda c: c.fail(500),
        lambda c: c.fail(429, {"Retry-After": "77"}),
        lambda c: c.fail(200, {"Content-Type": "text/html"}, b"<html>Please log in</html>"),
        lambda c: c.fail(200, {}, b'{"id": 5}'),
        lambda c: c.fail(200, {}, b"[[[]]]"),
        lambda c: setattr(c, "cut_at", 3),
    ],
)
def test_a_hub_that_is_none(act: Any, hub: Hub) -> None:
    put(hub)
    hub.faults.append(act)
    with pytest.raises(HubUnreachable) as caught:
        client(hub).info("ann/tiny")
    assert caught.value.message
    if "retry_after_s" in caught.value.details and caught.value.details["status"] == 429:
        assert caught.value.details["retry_after_s"] == 77


def test_nobody_listens_and_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubUnreachable):
        Client("http://127.0.0.1:9", token=lambda: None).search("x")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for ask in (lambda h: h.search("x"), lambda h: h.info("a/b"), lambda h: h.header("a/b", COMMIT, "x.gguf")):
        with pytest.raises(HubUnreachable) as caught:
            ask(client(hub))
        assert caught.value.details["offline"]
    assert hub.calls == []


@pytest.mark.parametrize("endpoint", ["ftp://x", "hub.example", "https://a:b@hub.example", "https://"])
def test_addresses_that_are_no_hub(endpoint: str) -> None:
    with pytest.raises(InvalidRequest):
        Client(endpoint)


def test_importing_brings_no_network_library() -> None:
    code = (
        "import sys, engine.models.hub, engine.models.download;"
        "print([m for m in ('httpx', 'httpx2', 'huggingface_hub', 'keyring') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------------- headers


def big_header(n_tokens: int = 300_000) -> bytes:
    """A header of over 8 MiB, as vocabularies make them."""
    maker = small_model(2)
    maker.add("tokenizer.ggml.tokens", 9, (8, [f"<token number {n:012}>" for n in range(n_tokens)]))
    return maker.bytes()


def test_a_header_by_range(hub: Hub) -> None:
    hub.repos["ann/tiny"] = Repo({"x.gguf": Stored(small_model().bytes() + bytes(9_000_000))})
    asking = client(hub)
    header = asking.header("ann/tiny", COMMIT, "x.gguf")
    assert header.architecture == "llama" and header.file_size > 9_000_000
    assert [h["range"] for h in hub.file_calls("storage")] == ["bytes=0-8388607"]
    asking.header("ann/tiny", COMMIT, "x.gguf")
    assert len(hub.file_calls("storage")) == 1  # kept: a file at a commit does not change


def test_a_large_header_is_fetched_in_doubling_ranges(hub: Hub) -> None:
    data = big_header()
    assert len(data) > 8 * 2**20
    hub.repos["ann/tiny"] = Repo({"x.gguf": Stored(data + bytes(20_000_000))})
    header = client(hub).header("ann/tiny", COMMIT, "x.gguf")
    assert len(header.tensors) == 2 and len(header.metadata["tokenizer.ggml.tokens"]) == 300_000
    assert [h["range"] for h in hub.file_calls("storage")] == ["bytes=0-8388607", "bytes=8388608-16777215"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"<html>" + bytes(100), NotAModel),
        (b"GGUF\3\0\0\0" + b"\xff" * 100, ModelFileDamaged),
        (b"", HubUnreachable),
    ],
)
def test_headers_that_are_none(data: bytes, error: type[Exception], hub: Hub) -> None:
    hub.repos["ann/tiny"] = Repo({"x.gguf": Stored(data)})
    with pytest.raises((error, NotAModel)):
        client(hub).header("ann/tiny", COMMIT, "x.gguf")
    with pytest.raises(HubNotFound):
        client(hub).header("ann/tiny", COMMIT, "y.gguf")


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
        ("UD-Q4_K_XL/GLM-UD-Q4_K_XL-00001-of-00004.gguf", "UD-Q4_K_XL"),
        ("UD-IQ1_S/part-00001-of-00003.gguf", "UD-IQ1_S"),
        ("Model.i1-IQ3_XXS.gguf", "IQ3_XXS"),
        ("gpt-oss-20b-MXFP4.gguf", "MXFP4"),
        ("gpt-oss-120b-mxfp4-00001-of-00003.gguf", "MXFP4"),
        ("gemma-BF16.gguf", "BF16"),
        ("gemma-fp16.gguf", "F16"),
        ("Model-Q4_0_4_8.gguf", "Q4_0_4_8"),
        ("Model-IQ4_NL.gguf", "IQ4_NL"),
        ("Model-Q8_0.gguf", "Q8_0"),
        ("Model-TQ1_0.gguf", "TQ1_0"),
        ("Model-Q6_K-Q8_0-embed-Q6_K_L.gguf", "Q6_K_L"),
        ("FQ4_K_Mx.gguf", ""),
        ("model.gguf", ""),
    ],
)
def test_quantization_of_a_name(path: str, label: str) -> None:
    assert hub_names.quant_label(path) == label


def test_sets_of_a_repository() -> None:
    names = [
        *("M-Q8_0.gguf", "M-Q4_K_M.gguf", "UD-Q4_K_XL/M-UD-Q4_K_XL-00002-of-00002.gguf"),
        *("UD-Q4_K_XL/M-UD-Q4_K_XL-00001-of-00002.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf", "M-draft-Q4_0.gguf"),
        *("BF16/M-BF16-00001-of-00003.gguf", "BF16/M-BF16-00003-of-00003.gguf", "imatrix.gguf", "README.md"),
        *("mtp-M-Q8_0.gguf", "M.imatrix.gguf"),
    ]
    sets = hub_names.model_sets(HubFile(name, 100 + n, "0" * 64) for n, name in enumerate(names))
    assert {item.label: (len(item.files), item.complete) for item in sets} == {
        "Q8_0": (1, True),
        "Q4_K_M": (1, True),
        "UD-Q4_K_XL": (2, True),
        "BF16": (2, False),
    }
    one = hub_names.find_set(sets, "ud-q4_k_xl")
    assert one is not None and [f.path[-19:-14] for f in one.files] == ["00001", "00002"]
    assert {f.path for f in one.mmproj} == {"mmproj-F16.gguf", "mmproj-BF16.gguf"}
    assert {f.path for f in one.draft} == {"M-draft-Q4_0.gguf", "mtp-M-Q8_0.gguf"}
    assert hub_names.find_set(sets, "UD-Q4_K_XL/M-UD-Q4_K_XL-00002-of-00002.gguf") is one
    assert hub_names.find_set(sets, "Q4_K_XL") is one and hub_names.find_set(sets, "Q2_K") is None


def test_a_repository_of_drafts_offers_them() -> None:
    (only,) = hub_names.model_sets([HubFile("Qwen-0.5B-DRAFT-Q4_0.gguf", 1)])
    assert only.label == "Q4_0" and only.draft == ()


# ---------------------------------------------------------------------- tokens


def test_where_a_token_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    kept: dict[tuple[str, str], str] = {}

    class Store:
        get_password = staticmethod(lambda service, name: kept.get((service, name)))
        set_password = staticmethod(lambda service, name, value: kept.__setitem__((service, name), value))
        delete_password = staticmethod(lambda service, name: kept.pop((service, name)))

    home = tmp_path / "hf"
    home.mkdir()
    (home / "token").write_text("hf_file_token\n")
    assert hub_token.find("https://huggingface.co") == "hf_file_token"
    monkeypatch.setenv("HF_TOKEN", "hf_env_token")
    assert hub_token.find("https://huggingface.co") == "hf_env_token"
    monkeypatch.setattr(hub_token, "keyring_module", lambda: Store)
    hub_token.save("https://huggingface.co", " hf_kept_token ")
    assert hub_token.find("https://huggingface.co") == "hf_kept_token"
    assert hub_token.find("https://mirror.example") == "hf_env_token"  # the kept one is for its hub only
    hub_token.forget("https://huggingface.co")
    assert hub_token.find("https://huggingface.co") == "hf_env_token"
    for bad in ("", "two words", "a\nb", "é"):
        with pytest.raises(InvalidRequest):
            hub_token.save("https://huggingface.co", bad)
