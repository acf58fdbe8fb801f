"""Trust in https servers: as in pip, the system's certificates, with those of a company, and certifi's."""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

REMEDY = (
    "add the CA's certificate to the system's (Debian: copy it to /usr/local/share/ca-certificates/NAME.crt and run "
    "update-ca-certificates), or set SSL_CERT_FILE=/path/to/its.pem"
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
    """Return the file with the system's certificates, or the one that SSL_CERT_FILE names; None where there is none."""
    named = (environ.get("SSL_CERT_FILE", ""), ssl.get_default_verify_paths().openssl_cafile, *_BUNDLES)
    return next((Path(path).absolute() for path in named if path and os.path.isfile(path)), None)


def share_with_programs(environ: MutableMapping[str, str]) -> None:
    """Have the programs that this process starts, uv and git, trust the certificates that it trusts itself."""
    if sys.platform != "linux" or system_bundle(environ) or environ.get("SSL_CERT_DIR"):
        environ.setdefault("UV_SYSTEM_CERTS", "1")  # without any, those that come with uv have to do
    for named, of_git in (("SSL_CERT_FILE", "GIT_SSL_CAINFO"), ("SSL_CERT_DIR", "GIT_SSL_CAPATH")):
        if value := environ.get(named):
            environ.setdefault(of_git, value)


def is_untrusted(reason: str) -> bool:
    """Return whether a connection failed because its certificate is not trusted."""
    return _UNTRUSTED.search(reason) is not None


def remedy_for(reason: str, otherwise: str) -> str:
    """Return what helps against a failed connection: for a certificate that is not trusted, how to trust it."""
    return REMEDY if is_untrusted(reason) else otherwise
