"""Trust in https servers, as in pip: the system's certificates, which may include a company's, and certifi's."""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

REMEDY = (
    "set SSL_CERT_FILE=/path/to/ca.pem, or install the CA's certificate (Debian: copy it to "
    "/usr/local/share/ca-certificates/NAME.crt and run sudo update-ca-certificates)"
)
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
)
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED|peer certificate|certificate verif|UnknownIssuer", re.I)


def trusting_context() -> ssl.SSLContext:
    """Return a context that trusts the system's certificates (or SSL_CERT_FILE, SSL_CERT_DIR) and certifi's."""
    import certifi
    import truststore

    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context


def system_bundle(environ: Mapping[str, str]) -> Path | None:
    """Return the file that SSL_CERT_FILE names, else the file of the system's certificates, else None."""
    named = (environ.get("SSL_CERT_FILE", ""), ssl.get_default_verify_paths().openssl_cafile, *_BUNDLES)
    for path in named:
        if path and os.path.isfile(path):
            return Path(path).absolute()
    return None


def share_with_programs(environ: MutableMapping[str, str]) -> None:
    """Set variables so that uv and git trust the same certificates as this process."""
    if sys.platform != "linux" or system_bundle(environ) or environ.get("SSL_CERT_DIR"):
        environ.setdefault("UV_SYSTEM_CERTS", "1")  # without system certificates, uv uses its own
    for named, of_git in (("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")):
        if value := environ.get(named):
            environ.setdefault(of_git, value)


def is_untrusted(reason: str) -> bool:
    """Return whether a connection failed because its certificate is not trusted."""
    return _UNTRUSTED.search(reason) is not None
