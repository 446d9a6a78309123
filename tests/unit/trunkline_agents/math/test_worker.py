"""Frames between the math engine and its worker."""

import io

import pytest

from trunkline_agents.math.worker import (
    MAX_FRAME_BYTES,
    BrokenFrameError,
    encode_frame,
    read_frame,
)


def test_frames_are_read_one_by_one() -> None:
    stream = io.BytesIO(encode_frame({"a": 1}) + encode_frame({"b": "√"}))
    assert [read_frame(stream), read_frame(stream), read_frame(stream)] == [
        {"a": 1},
        {"b": "√"},
        None,
    ]


@pytest.mark.parametrize(
    "content",
    [
        encode_frame({"a": 1})[:-1],
        b"\x00\x00",
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02{]",
        b"\x00\x00\x00\x01\xff",
        b"print",
    ],
)
def test_a_malformed_frame_is_refused(content: bytes) -> None:
    with pytest.raises(BrokenFrameError):
        read_frame(io.BytesIO(content))
