"""What every request passes: paths, Host and Origin, CORS, the API key, the body's size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from server.settings import RequestLimits, Settings
from tests.server.fakes import Served, serve

BODY = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080"])
async def test_our_own_names(served: Served, host: str) -> None:
    assert (await served.client.get("/health", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:8080", "10.0.0.1", "[", "a]b"])
async def test_a_foreign_host(served: Served, host: str) -> None:
    reply = await served.client.get("/v1/models", headers={"Host": host})
    assert reply.status_code == 403
    assert reply.json()["error"]["code"] == "foreign_origin"


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost.evil", "file://", "http://["])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_a_foreign_origin(served: Served, origin: str, method: str) -> None:
    reply = await served.client.request(method, "/v1/chat/completions", json=BODY, headers={"Origin": origin})
    assert reply.status_code == 403
    assert not served.engine.requests


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:9", "https://ui.example"])
async def test_allowed_origins(origin: str) -> None:
    async with serve(settings=Settings(allow_origins=("https://ui.example",))) as served:
        reply = await served.client.post("/v1/chat/completions", json=BODY, headers={"Origin": origin})
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == origin
        stream = await served.client.post("/v1/chat/completions", json={**BODY, "stream": True}, headers={"Origin": origin})
        assert stream.headers["access-control-allow-origin"] == origin
        error = await served.client.get("/nope", headers={"Origin": origin})
        assert error.headers["access-control-allow-origin"] == origin


async def test_a_public_bind_checks_no_host() -> None:
    async with serve(settings=Settings(host="0.0.0.0", allow_origins=("https://ui.example",))) as served:
        reply = await served.client.get("/v1/models", headers={"Host": "server.example", "Origin": "http://evil.example"})
        assert reply.status_code == 200
        assert "access-control-allow-origin" not in reply.headers


async def test_a_preflight(served: Served) -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Headers": "authorization, x-custom"}
    reply = await served.client.options("/v1/models", headers=headers)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert reply.headers["access-control-allow-headers"] == "authorization, x-custom"
    assert "POST" in reply.headers["access-control-allow-methods"]
    bare = await served.client.options("/v1/models")
    assert bare.status_code == 204
    assert "access-control-allow-origin" in bare.headers


async def test_the_api_key() -> None:
    async with serve(settings=Settings(api_key="sésame")) as served:
        wrong: tuple[dict[bytes, bytes], ...] = (
            {}, {b"Authorization": b"Bearer wrong"}, {b"Authorization": "sésame".encode()}, {b"X-Api-Key": b"no"},
        )  # fmt: skip
        for headers in wrong:
            reply = await served.client.get("/v1/models", headers=headers)
            assert reply.status_code == 401
            assert reply.json()["error"]["code"] == "invalid_api_key"
        assert (await served.client.get("/health")).status_code == 200
        assert (await served.client.options("/v1/models")).status_code == 204
        for headers in ({b"Authorization": "Bearer sésame".encode()}, {b"x-api-key": "sésame".encode()}):
            assert (await served.client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["//v1/models", "/v1//models/", "/models", "/v1/models/"])
async def test_careless_paths(served: Served, path: str) -> None:
    reply = await served.client.get(f"http://127.0.0.1:8080{path}")
    assert reply.status_code == 200


async def test_the_bodys_size_is_bounded() -> None:
    settings = replace(Settings(), request_limits=RequestLimits(body_bytes=100))
    async with serve(settings=settings) as served:
        largest = b'{"messages":[{"role":"user","content":"hi"}]}'.ljust(100)
        assert (await served.client.post("/v1/chat/completions", content=largest)).status_code == 200

        async def pieces() -> object:
            for _ in range(3):
                yield b" " * 50

        for content in (largest + b" ", b" " * 100_000, pieces()):
            reply = await served.client.post("/v1/chat/completions", content=content)  # type: ignore[arg-type]
            assert reply.status_code == 413
            assert reply.json()["error"]["code"] == "body_too_large"
            assert "100" in reply.json()["error"]["message"]


async def test_the_content_type_does_not_matter(served: Served) -> None:
    content = b'{"messages":[{"role":"user","content":"hi"}]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"):
        reply = await served.client.post("/v1/chat/completions", content=content, headers={"Content-Type": kind})
        assert reply.status_code == 200


async def test_head_is_get_without_its_body() -> None:
    async with serve() as served:
        for path in ("/health", "/v1/models", "/v1/models/fake"):
            got, head = await served.client.get(path), await served.client.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers == got.headers
        assert (await served.client.head("/v1/chat/completions")).status_code == 405
        assert (await served.client.head("/nowhere")).status_code == 404


async def test_answers_are_counted_by_route() -> None:
    async with serve() as served:
        await served.chat()
        await served.client.get("/v1/models/fake")
        await served.client.get("/v1/models/dir/other")
        await served.client.get("/made/up")
        await served.client.request("BREW", "/made/up")
        counts = served.app.state.manager.metrics.http
        assert counts == {
            ("/v1/chat/completions", "POST", 200): 1,
            ("/v1/models/{name}", "GET", 200): 2,
            ("none", "GET", 404): 1,
            ("none", "other", 404): 1,
        }
