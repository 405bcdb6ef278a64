from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import TokenConfig
from penstock.log import TopicSettings
from penstock.server.auth.rights import ANONYMOUS, Principal, TokenAuthenticator
from penstock.slogd.errors import NotAllowed, Unauthenticated

OPEN = TopicSettings()
SECRET = "a secret of the writer"
TOKENS = {
    "writer": TokenConfig(token=SECRET, write=("web-*",), read=("web-a",)),
    "hashed": TokenConfig(token="sha256:" + hashlib.sha256(b"known by its digest").hexdigest(), read=("*",)),
    "boss": TokenConfig(token="the administrator's", admin=True),
}


def test_without_tokens_everybody_may_do_everything() -> None:
    caller = TokenAuthenticator().caller(None)
    assert caller is ANONYMOUS
    assert caller.reads("t", OPEN)
    assert caller.writes("t", OPEN)
    caller.check_admin()
    caller.check_ledger()


@pytest.mark.parametrize("shown", [None, "", SECRET, f"Basic {SECRET}", "Bearer", "Bearer nobody's secret at all"])
def test_with_tokens_nobody_comes_in_without(shown: str | None) -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(shown)


def test_a_digest_is_not_the_token() -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(f"Bearer {TOKENS['hashed'].token}")
    assert TokenAuthenticator(TOKENS).caller("bearer known by its digest").name == "hashed"


def test_rights_are_by_topic() -> None:
    caller = TokenAuthenticator(TOKENS).caller(f"Bearer {SECRET}")
    assert [caller.writes(topic, OPEN) for topic in ("web-a", "web-", "web", "other")] == [True, True, False, False]
    assert [caller.reads(topic, OPEN) for topic in ("web-a", "web-b")] == [True, False]
    for refused in (caller.check_admin, caller.check_ledger):
        with pytest.raises(NotAllowed):
            refused()


def test_a_topic_may_name_who_reads_and_writes_it() -> None:
    closed = TopicSettings(readers=("hashed",), writers=())
    reader = TokenAuthenticator(TOKENS).caller("Bearer known by its digest")
    assert reader.reads("t", closed)
    assert not TokenAuthenticator(TOKENS).caller(f"Bearer {SECRET}").reads("web-a", closed)
    assert not ANONYMOUS.reads("t", closed)
    assert not ANONYMOUS.writes("t", closed)


def test_internal_topics_are_for_administrators() -> None:
    guard = TokenAuthenticator(TOKENS, internal="of the data directory")
    assert not guard.caller("Bearer known by its digest").reads("_ledger", OPEN)
    assert guard.caller("Bearer the administrator's").reads("_ledger", OPEN)


def test_the_product_itself_may_do_everything() -> None:
    inside = TokenAuthenticator(TOKENS, internal="of the data directory").caller("Bearer of the data directory")
    closed = TopicSettings(readers=(), writers=())
    assert inside.reads("t", closed)
    assert inside.writes("t", closed)
    inside.check_admin()
    inside.check_ledger()


def test_a_refusal_names_the_topic() -> None:
    with pytest.raises(NotAllowed, match="Topic may not be read: t"):
        Principal("x").check_read("t", OPEN)
    with pytest.raises(NotAllowed, match="Topic may not be written: t"):
        Principal("x").check_write("t", OPEN)


ANY_TEXT = st.text(st.characters(categories=("L", "Cs", "Cc", "Zs")), max_size=20)


@given(ANY_TEXT | ANY_TEXT.map("Bearer {}".format) | ANY_TEXT.map("BEARER {}".format))
def test_no_header_is_anybody_but_one_with_a_token(shown: str) -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(shown)
