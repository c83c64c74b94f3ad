"""`/v1/files` over raw HTTP: what is kept, what is refused, what is left behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from forebay.gateway.http import multipart
from forebay.jobs.batches import files
from forebay.jobs.batches.file import FILE_BYTES_MAX

from ..hot.forms import BOUNDARY, TYPE, field, file, form, part, send, upload

if TYPE_CHECKING:
    from pathlib import Path

    from ..conftest import Rig

PURPOSE = field("purpose", "batch")
KEYS: dict[str, Any] = {
    "keys": [
        {"name": "team-a", "key_env": "A", "user": "a"},
        {"name": "team-b", "key_env": "B", "user": "b"},
    ],
    "environ": {"A": "secret-a-0123456789", "B": "secret-b-0123456789"},
}
A = {"authorization": "Bearer secret-a-0123456789"}
B = {"authorization": "Bearer secret-b-0123456789"}


def left_behind(rig: Rig) -> list[Path]:
    return list(rig.gateway.parts.jobs.engine.files.folder.iterdir())


async def test_a_file_is_stored_shown_read_and_deleted(rig: Rig) -> None:
    await rig.start()
    shown = await upload(rig, b'{"a": 1}\n\0\xff--xyz')
    assert shown == {
        "id": shown["id"],
        "object": "file",
        "bytes": 16,
        "created_at": shown["created_at"],
        "expires_at": None,
        "filename": "in.jsonl",
        "purpose": "batch",
        "status": "processed",
        "status_details": None,
    }
    assert isinstance(shown["created_at"], int)
    path = f"/v1/files/{shown['id']}"
    assert (await rig.get(path)).json == shown
    content = await rig.get(f"{path}/content")
    assert content.body == b'{"a": 1}\n\0\xff--xyz'
    assert content.headers["content-type"] == "application/octet-stream"
    assert content.headers["content-length"] == "16"
    deleted = await rig.get(path, method="DELETE")
    assert deleted.json == {"id": shown["id"], "object": "file", "deleted": True}
    for method, where in (("GET", path), ("DELETE", path), ("GET", f"{path}/content")):
        reply = await rig.get(where, method=method)
        assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")
    assert left_behind(rig) == []


async def test_the_purpose_may_come_after_the_file(rig: Rig) -> None:
    await rig.start()
    reply = await send(rig, form(file(b"x"), PURPOSE))
    assert (reply.status, reply.json["bytes"]) == (200, 1)


async def test_an_empty_file_is_a_file(rig: Rig) -> None:
    await rig.start()
    assert (await upload(rig, b""))["bytes"] == 0


async def test_a_file_larger_than_any_other_body_arrives_whole(rig: Rig) -> None:
    await rig.start(server={"body_max_bytes": 65_536})
    content = bytes(range(256)) * 16_384  # 4 MiB: several pieces
    shown = await upload(rig, content)
    assert (await rig.get(f"/v1/files/{shown['id']}/content")).body == content


async def test_a_file_that_comes_byte_by_byte_is_the_same(rig: Rig) -> None:
    await rig.start()
    client = await rig.client()
    body = form(PURPOSE, file(b"slow\r\n--xy"))
    head = f"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {TYPE['content-type']}\r\n"
    await client.send(f"{head}content-length: {len(body)}\r\n\r\n".encode())
    for i in range(len(body)):
        await client.send(body[i : i + 1])
    shown = (await client.reply()).json
    assert (await rig.get(f"/v1/files/{shown['id']}/content")).body == b"slow\r\n--xy"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("/etc/passwd", "passwd"), ("C:\\\\x\\\\in.jsonl", "in.jsonl"), ("..", ".."),
     ("a\tb", "ab"), ("日本.jsonl", "日本.jsonl"), ("n" * 999, "n" * 255)],
)  # fmt: skip
async def test_a_filename_is_only_shown(rig: Rig, given: str, kept: str) -> None:
    await rig.start()
    reply = await send(rig, form(PURPOSE, file(b"x", given)))
    assert (reply.status, reply.json["filename"]) == (200, kept)
    assert [path.name for path in left_behind(rig)] == [reply.json["id"]]


HEAD = 'Content-Disposition: form-data; name="x"'
WRONG = {
    "no file": (form(PURPOSE), "file"),
    "no parts": (form(), "file"),
    "nothing": (b"", "body"),
    "not a form": (b"hello", "body"),
    "half a form": (form(PURPOSE, file(b"x" * 50))[:-20], "body"),
    "only a head": (f"--{BOUNDARY}\r\n{HEAD}".encode(), "body"),
    "another boundary": (form(PURPOSE, file(b"x")).replace(b"--xyz", b"--abc"), "body"),
    "no purpose": (form(file(b"x")), "purpose"),
    "another purpose": (form(field("purpose", "fine-tune"), file(b"x")), "purpose"),
    "empty purpose": (form(field("purpose", ""), file(b"x")), "purpose"),
    "purpose twice": (form(PURPOSE, PURPOSE, file(b"x")), "purpose"),
    "purpose too long": (form(field("purpose", "b" * 2000), file(b"x")), "purpose"),
    "file twice": (form(PURPOSE, file(b"x"), file(b"y")), "file"),
    "file without a name": (form(PURPOSE, field("file", "x")), "file"),
    "a file elsewhere": (form(PURPOSE, file(b"x", name="files"), file(b"x")), "files"),
    "an unknown field": (form(PURPOSE, field("colour", "red"), file(b"x")), "colour"),
    "an expiry": (form(PURPOSE, field("expires_after[seconds]", "9"), file(b"x")), "expires_after"),
    "a nameless part": (form(part("Content-Disposition: form-data", b"x")), "body"),
    "a part of another kind": (form(part('Content-Disposition: x; name="file"', b"")), "body"),
    "a part without a head": (form(part("X-Nothing: 1", b"x")), "body"),
    "too many parts": (form(*(field(f"f{i}", "") for i in range(20))), "body"),
    "a head too long": (form(part(f"{HEAD}; y={'z' * 9000}", b"")), "body"),
    "too many heads": (form(part("\r\n".join(f"a{i}: b" for i in range(99)), b"")), "body"),
    "a head that is none": (form(part("no colon here", b"")), "body"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_form_is_refused_by_field_and_leaves_nothing(rig: Rig, name: str) -> None:
    await rig.start()
    body, param = WRONG[name]
    reply = await send(rig, body)
    error = reply.json["error"]
    assert (reply.status, error["param"]) == (400, param), error
    assert error["code"] in ("invalid_request", "unsupported")
    assert left_behind(rig) == []
    assert (await rig.get("/v1/files")).json["data"] == []


@pytest.mark.parametrize(
    "kind",
    ["application/json", "text/plain; boundary=xyz", "multipart/form-data", "",
     "multipart/form-data; boundary=", f"multipart/form-data; boundary={'x' * 71}"],
)  # fmt: skip
async def test_only_a_form_is_a_form(rig: Rig, kind: str) -> None:
    await rig.start()
    reply = await send(rig, form(PURPOSE, file(b"x")), {"content-type": kind})
    assert (reply.status, reply.json["error"]["param"]) == (400, "Content-Type")


async def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.FolderUpload.write, "__defaults__", (2_000_000,))
    await rig.start()
    reply = await send(rig, form(PURPOSE, file(b"x" * 3_000_000)))
    assert (reply.status, reply.json["error"]["code"]) == (413, "file_too_large")
    assert left_behind(rig) == []


async def test_a_file_that_says_that_it_is_too_large_is_not_even_read(rig: Rig) -> None:
    await rig.start()
    client = await rig.client()
    size = FILE_BYTES_MAX + multipart.FORM_BYTES_MAX + 1
    head = f"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {TYPE['content-type']}\r\n"
    await client.send(f"{head}content-length: {size}\r\n\r\n".encode())
    reply = await client.reply()
    assert (reply.status, reply.json["error"]["code"]) == (413, "file_too_large")


async def test_a_client_that_leaves_midway_leaves_nothing(rig: Rig) -> None:
    await rig.start()
    await rig.get("/v1/files")
    client = await rig.client()
    body = form(PURPOSE, file(b"x" * 3_000_000))
    head = f"POST /v1/files HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {TYPE['content-type']}\r\n"
    await client.send(f"{head}content-length: {len(body)}\r\n\r\n".encode())
    await client.send(body[:2_500_000])
    async with asyncio.timeout(10):
        while not left_behind(rig):
            await rig.get("/v1/files")
        client.close()
        while left_behind(rig):
            await rig.get("/v1/files")


async def test_the_bound_on_what_is_kept_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "OWNER_FILES_MAX", 1)
    await rig.start()
    await upload(rig, b"x")
    reply = await send(rig, form(PURPOSE, file(b"y")))
    assert (reply.status, reply.json["error"]["code"]) == (409, "files_full")
    assert len(left_behind(rig)) == 1


async def test_files_are_listed_page_by_page(rig: Rig) -> None:
    await rig.start()
    ids = [(await upload(rig, b"x"))["id"] for _ in range(3)]
    whole = (await rig.get("/v1/files")).json
    assert [one["id"] for one in whole["data"]] == ids[::-1]
    assert (whole["object"], whole["has_more"]) == ("list", False)
    assert (whole["first_id"], whole["last_id"]) == (ids[2], ids[0])
    first = (await rig.get("/v1/files?limit=2&order=asc&purpose=batch")).json
    assert ([one["id"] for one in first["data"]], first["has_more"]) == (ids[:2], True)
    rest = (await rig.get(f"/v1/files?limit=2&order=asc&after={ids[1]}")).json
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == (ids[2:], False)
    assert (await rig.get("/v1/files?purpose=batch_output")).json["data"] == []


@pytest.mark.parametrize(
    ("query", "param"),
    [*((f"limit={value}", "limit") for value in ("0", "-1", "x", "", "10001", "1e3", "9" * 30)),
     ("order=up", "order"), ("order=", "order"), ("after=x", "after"), ("after=", "after"),
     ("after=file-000000000000000000000000", "after"), ("after=%00", "after"),
     ("purpose=%00", "purpose")],
)  # fmt: skip
async def test_a_wrong_list_is_refused_by_parameter(rig: Rig, query: str, param: str) -> None:
    await rig.start()
    reply = await rig.get(f"/v1/files?{query}")
    assert (reply.status, reply.json["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    "name", ["x", "file-0", "file-" + "0" * 24, "%00", "..", "file-" + "A" * 24]
)
async def test_what_is_not_there_is_not_found(rig: Rig, name: str) -> None:
    await rig.start()
    for method, path in (("GET", name), ("DELETE", name), ("GET", f"{name}/content")):
        reply = await rig.get(f"/v1/files/{path}", method=method)
        assert (reply.status, reply.json["error"]["code"]) == (404, "not_found")


async def test_another_key_s_files_do_not_exist(rig: Rig) -> None:
    await rig.start(**KEYS)
    shown = await upload(rig, b"x", A)
    path = f"/v1/files/{shown['id']}"
    assert (await rig.get(path, A)).status == 200
    for method, where in (("GET", path), ("DELETE", path), ("GET", f"{path}/content")):
        assert (await rig.get(where, B, method)).status == 404
    assert (await rig.get("/v1/files", B)).json["data"] == []
    assert (await rig.get(f"/v1/files?after={shown['id']}", B)).status == 400
    assert (await rig.get(path)).status == 401
    assert (await send(rig, form(PURPOSE, file(b"x")))).status == 401


async def test_a_database_that_cannot_be_opened_is_said_to_be_away(
    rig: Rig, tmp_path: Path
) -> None:
    await rig.start(jobs={"database": f"sqlite:///{tmp_path}/none/jobs.db"})
    for reply in (await rig.get("/v1/files"), await send(rig, form(PURPOSE, file(b"x")))):
        assert (reply.status, reply.json["error"]["code"]) == (503, "store_unavailable")
        assert "retry-after" in reply.headers
    (tmp_path / "none").mkdir()
    await upload(rig, b"x")
