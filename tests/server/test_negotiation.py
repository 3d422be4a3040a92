"""What a request takes and has, by the letter of RFC 9110."""

import pytest
from fastapi import Request

from stabmon.server.negotiation import has, takes_gzip


def asked(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw})


@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.1, br", True),
        ("gzip ; q=1.0", True),
        ("gzip;q=0", False),
        ("br, gzip; q=0.000", False),
        ("identity", False),
        ("x-gzip-like", False),
        ("", False),
    ],
)
def test_gzip_is_taken_where_it_is_named_with_a_weight_over_0(accept: str, taken: bool) -> None:
    assert takes_gzip(asked(accept_encoding=accept)) is taken


@pytest.mark.parametrize(
    ("known", "had"), [('"a1"', True), ('W/"a1"', True), ('"b2", W/"a1"', True), ('"b2"', False), ("", False)]
)
def test_a_tag_that_a_proxy_made_weak_is_the_same(known: str, had: bool) -> None:
    assert has(asked(if_none_match=known), '"a1"') is had
