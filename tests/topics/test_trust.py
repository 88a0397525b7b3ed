"""The trust store that a Java from a wheel is given."""

import hashlib
import struct

from errata.topics.jars import PASSWORD, trust_store


def test_a_trust_store_holds_every_certificate_and_ends_with_its_digest():
    store = trust_store([b"one", b"two!"])
    assert struct.unpack(">III", store[:12]) == (0xFEEDFEED, 2, 2)
    assert store.count(b"X.509") == 2
    assert b"one" in store
    assert b"two!" in store
    sealed = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store[:-20]
    assert store[-20:] == hashlib.sha1(sealed).digest()
