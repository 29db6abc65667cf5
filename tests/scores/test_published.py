"""Published scores: the stream is read only as far as necessary, in blocks of any size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.scores._published import select_columns

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def split(content: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return (content[a:b] for a, b in pairwise(edges))


@given(
    values=st.dictionaries(st.text(min_size=1), JSON, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10**6), max_size=12),
    indent=st.sampled_from([None, 4]),
    ascii_only=st.booleans(),
    data=st.data(),
)
@settings(max_examples=200, deadline=None)
def test_columns_are_found_for_any_split_of_the_stream(
    values: dict[str, Any], cuts: list[int], indent: int | None, ascii_only: bool, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.sampled_from(sorted(values)), unique=True))
    content = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    found = select_columns(split(content, cuts), wanted, "x")
    assert found == {key: values[key] for key in values if key in wanted}


def test_nothing_is_read_after_the_last_column() -> None:
    read: list[int] = []

    def blocks() -> Iterator[bytes]:
        for i, block in enumerate([b'{"a": 1, "sco', b'res": [[1, 2]], "te', b'xt": "', b"x" * 10**6, b'"}']):
            read.append(i)
            yield block

    assert select_columns(blocks(), ["scores"], "x") == {"scores": [[1, 2]]}
    assert read == [0, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": [1, 2', "the file ends too early"),
        (b"[1, 2]", "not a JSON object"),
        (b"", "the file ends too early"),
        (b'{"id": [1, oops]}', "not JSON"),
        (b"<html>Error: 503</html>", "the file ends too early"),
    ],
)
def test_streams_that_are_not_a_json_object_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_columns([content], ["id"], "x.json")
