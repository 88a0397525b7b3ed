"""The certificate authorities that this machine trusts, in the form that Java reads.

A Java from a wheel brings authorities of its own and does not know a company's, which the machine
does. A JKS trust store is a header, the certificates, and a digest that begins with the password.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from pathlib import Path

BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
PASSWORD = "changeit"  # Java's own default: the store holds nothing secret


def authorities() -> list[bytes]:
    """Return the certificates, DER, that this machine trusts; [] if they can't be found."""
    context = ssl.create_default_context()
    for bundle in (os.environ.get("SSL_CERT_FILE"), *BUNDLES):
        if bundle and Path(bundle).is_file():
            context.load_verify_locations(cafile=bundle)
    return context.get_ca_certs(binary_form=True)


def trust_store(certificates: list[bytes]) -> bytes:
    """Return a JKS trust store of these certificates.

    Example:
        >>> trust_store([b"der"])[:12].hex()
        'feedfeed0000000200000001'
    """

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    entries = [
        struct.pack(">I", 2) + text(str(number)) + struct.pack(">Q", 0) + text("X.509")
        + struct.pack(">I", len(der)) + der
        for number, der in enumerate(certificates)
    ]  # fmt: skip
    store = struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)
    seal = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store)
    return store + seal.digest()


def java_options(folder: Path) -> list[str]:
    """Write the trust store into a folder; return the options that make Java use it."""
    found = authorities()
    if not found:
        return []
    store = folder / "trust.jks"
    store.write_bytes(trust_store(found))
    names = {"": store, "Type": "jks", "Password": PASSWORD}
    return [f"-Djavax.net.ssl.trustStore{name}={value}" for name, value in names.items()]
