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


def test_anonymous_caller_has_all_rights_without_tokens() -> None:
    caller = TokenAuthenticator().caller(None)
    assert caller is ANONYMOUS
    assert caller.reads("t", OPEN)
    assert caller.writes("t", OPEN)
    caller.check_admin()
    caller.check_ledger()


@pytest.mark.parametrize("header", [None, "", SECRET, f"Basic {SECRET}", "Bearer", "Bearer nobody's secret at all"])
def test_configured_tokens_refuse_requests_without_one(header: str | None) -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(header)


def test_digest_of_a_token_is_not_accepted() -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(f"Bearer {TOKENS['hashed'].token}")
    assert TokenAuthenticator(TOKENS).caller("bearer known by its digest").name == "hashed"


def test_rights_are_checked_per_topic() -> None:
    caller = TokenAuthenticator(TOKENS).caller(f"Bearer {SECRET}")
    assert [caller.writes(topic, OPEN) for topic in ("web-a", "web-", "web", "other")] == [True, True, False, False]
    assert [caller.reads(topic, OPEN) for topic in ("web-a", "web-b")] == [True, False]
    for refused in (caller.check_admin, caller.check_ledger):
        with pytest.raises(NotAllowed):
            refused()


def test_topic_settings_restrict_readers_and_writers() -> None:
    closed = TopicSettings(readers=("hashed",), writers=())
    reader = TokenAuthenticator(TOKENS).caller("Bearer known by its digest")
    assert reader.reads("t", closed)
    assert not TokenAuthenticator(TOKENS).caller(f"Bearer {SECRET}").reads("web-a", closed)
    assert not ANONYMOUS.reads("t", closed)
    assert not ANONYMOUS.writes("t", closed)


def test_internal_topics_require_the_right_admin() -> None:
    guard = TokenAuthenticator(TOKENS, internal="of the data directory")
    assert not guard.caller("Bearer known by its digest").reads("_ledger", OPEN)
    assert guard.caller("Bearer the administrator's").reads("_ledger", OPEN)


def test_internal_token_has_all_rights() -> None:
    inside = TokenAuthenticator(TOKENS, internal="of the data directory").caller("Bearer of the data directory")
    closed = TopicSettings(readers=(), writers=())
    assert inside.reads("t", closed)
    assert inside.writes("t", closed)
    inside.check_admin()
    inside.check_ledger()


def test_refusal_names_the_topic() -> None:
    with pytest.raises(NotAllowed, match="Topic may not be read: t"):
        Principal("x").check_read("t", OPEN)
    with pytest.raises(NotAllowed, match="Topic may not be written: t"):
        Principal("x").check_write("t", OPEN)


ANY_TEXT = st.text(st.characters(categories=("L", "Cs", "Cc", "Zs")), max_size=20)


@given(ANY_TEXT | ANY_TEXT.map("Bearer {}".format) | ANY_TEXT.map("BEARER {}".format))
def test_any_header_without_a_token_is_refused(header: str) -> None:
    with pytest.raises(Unauthenticated):
        TokenAuthenticator(TOKENS).caller(header)
