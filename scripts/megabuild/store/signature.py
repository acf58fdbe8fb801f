"""Signatures by ssh-keygen, with the keys that people, agents and CI services have already (ssh-keygen(1), ``-Y``)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from groundwork.errors import IntegrityError, PreflightError

#: What a signature is for: one that somebody made for another purpose is none here.
_NAMESPACE = "megabuild-store"
_SECONDS = 60


def sign(content: bytes, key: Path) -> bytes:
    """Return the signature of ``content`` by a private key, or by the agent's where ``key`` is a public one.

    Raises PreflightError: The key cannot be used.
    """
    done = _ssh_keygen("sign", "-f", str(key), given=content)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise PreflightError(
            f"{key} signs nothing: {why}", "give a private key without a passphrase, or one that an agent has"
        )
    return done.stdout


def check(content: bytes, signature: bytes, signers: Path) -> str:
    """Return who has signed ``content``, of those that ``signers`` names (a file of ssh-keygen's "allowed signers").

    Raises IntegrityError: Nobody of them has.
    """
    with tempfile.NamedTemporaryFile(suffix=".sig") as file:
        file.write(signature)
        file.flush()
        found = _ssh_keygen("find-principals", "-s", file.name, "-f", str(signers))
        names = found.stdout.decode(errors="replace").splitlines() if not found.returncode else []
        for name in names:
            asked = ("-f", str(signers), "-I", name, "-s", file.name)
            if not _ssh_keygen("verify", *asked, given=content).returncode:
                return name
    raise IntegrityError(
        "what the store has is not signed by anybody whom you trust",
        f"{signers} names those; the key of whoever has built it may be missing there",
    )


def _ssh_keygen(do: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = ["ssh-keygen", "-Y", do, "-n", _NAMESPACE, *arguments]
    if do == "find-principals":
        command = ["ssh-keygen", "-Y", do, *arguments]
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise PreflightError(
            "ssh-keygen, which signs what is stored, is not installed", "install openssh-client"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PreflightError("ssh-keygen waits for a passphrase", "use a key that an agent has") from error
