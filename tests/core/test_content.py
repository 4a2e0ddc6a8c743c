"""Content parts: how they are made, checked and described."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from helix_agents import File, Image
from helix_agents.content import Audio, as_part, as_parts, described
from helix_agents.errors import InvalidArgument
from helix_agents.messages import ensure_sayable
from helix_agents.values import to_json

PNG = b"\x89PNG\r\n\x1a\n..."
DATA = base64.b64encode(PNG).decode()
PICTURE = {"type": "image", "media_type": "image/png", "data": DATA}


def test_an_image_is_made_from_bytes_a_file_or_an_address(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    sized = {**PICTURE, "size": len(PNG)}
    assert Image(PNG) == sized
    assert Image(tmp_path / "a.png") == Image(str(tmp_path / "a.png")) == {**sized, "name": "a.png"}
    assert Image(f"data:image/png;base64,{DATA}") == PICTURE
    linked = {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"}
    assert Image("https://example.org/a.png") == linked
    assert Image("sha256:ab", "image/gif") == {"type": "image", "media_type": "image/gif", "blob": "sha256:ab"}


def test_files_and_sounds() -> None:
    assert File(b"a,b", "text/csv", name="t.csv") == {
        "type": "file",
        "media_type": "text/csv",
        "name": "t.csv",
        "size": 3,
        "data": "YSxi",
    }
    assert File(b"%PDF-1.7")["media_type"] == "application/pdf"
    assert Audio(b"x", name="a.wav")["media_type"].startswith("audio/")


def test_a_media_type_that_is_not_known_must_be_given() -> None:
    with pytest.raises(InvalidArgument, match="pass media_type"):
        Image(b"???")


def test_parts_are_plain_json() -> None:
    made: Any = to_json(["Here:", Image(PNG)])
    assert type(made[1]) is dict
    assert as_parts(made) == [{"type": "text", "text": "Here:"}, {**PICTURE, "size": len(PNG)}]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "media_type": "image/png"},
        {"type": "image", "data": "AAAA"},
        {"type": "image", "media_type": "image/png", "data": "AAAA", "url": "https://example.org"},
        {"type": "image", "media_type": "image/png", "data": b"AAAA"},
        {"type": "image", "media_type": "image/png", "url": ""},
        {"type": "film", "media_type": "video/mp4", "url": "https://example.org"},
        {"type": "text"},
        {"text": "Hi"},
        "Hi",
        None,
    ],
)
def test_a_part_of_another_shape_is_rejected(part: Any) -> None:
    with pytest.raises(InvalidArgument):
        as_part(part)
    with pytest.raises(InvalidArgument):
        ensure_sayable({"role": "user", "content": [part]})


def test_an_image_url_is_an_image() -> None:
    assert as_part({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}) == PICTURE
    linked = as_part({"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}})
    assert linked == {"type": "image", "media_type": "image/*", "url": "https://example.org/a.png"}


@pytest.mark.parametrize(
    "result",
    [
        "text",
        None,
        3,
        [],
        ["a", "b"],
        [{"type": "text", "text": "a"}],
        {"type": "image"},
        [PICTURE, {"n": 1}],
        {"a": PICTURE},
    ],
)
def test_ordinary_results_are_not_parts(result: Any) -> None:
    assert as_parts(result) is None


def test_one_image_is_parts() -> None:
    assert as_parts(PICTURE) == [PICTURE]


def test_content_is_described_without_its_data() -> None:
    content = [{"type": "text", "text": "Look:"}, {**PICTURE, "name": "a.png"}, PICTURE, {"type": "odd"}]
    assert described(content) == "Look:\n[image 'a.png' (image/png)]\n[image (image/png)]\n[odd]"
    assert (described("Hi"), described(None)) == ("Hi", "")
