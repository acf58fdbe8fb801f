"""A bare Debian root with an ordinary user: Debian's own Python, and no pyenv, ccache or configuration of pip."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from filelock import FileLock

#: Debian 13, which Debian configs are built with.
SUITE = "trixie"
#: README's packages, and the certificates that every machine with a network has.
PACKAGES = ("ca-certificates", "python3", "python3-venv", "python3-dev", "g++", "git")
#: apt's options that say how this machine reaches its mirrors.
_NETWORK = re.compile(
    r"^(Acquire::(?:Check-|Retries|ForceIPv|http|https|ftp|Proxy)[^ ]*) (\".+\");$", re.IGNORECASE
)
#: A mirror's copy of a release may be older than the release's date of expiry.
_OPTIONS = ('Acquire::Languages "none";', 'Acquire::Check-Valid-Until "false";')
HOME = "/home/newcomer"
_USER = 1000
_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
#: How the machine reaches the network; nothing else of its environment gets in.
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@dataclass(frozen=True, kw_only=True)
class BareRoot:
    """A root, read-only, and the home folder of a user who can write nowhere else."""

    root: Path
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, *command: str, timeout: float = 900.0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as that user, in the clone in its home."""
        words = ["bwrap", "--unshare-pid", "--die-with-parent", "--ro-bind", str(self.root), "/"]
        words += [
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--ro-bind",
            "/sys",
            "/sys",
            "--perms",
            "1777",
            "--tmpfs",
            "/tmp",
        ]
        words += ["--bind", str(self.home), HOME, "--chdir", f"{HOME}/megabuild"]
        words += ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups", "env", "-i"]
        usual = {"HOME": HOME, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
        chosen = {**self.environment, **usual, **(environment or {})}
        words += [f"{name}={value}" for name, value in chosen.items()]
        return subprocess.run(
            [*words, *command], capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )


@contextmanager
def emulated(machine: str) -> Iterator[None]:
    """Have the kernel start programs for another processor (``aarch64``) with qemu; skips the test where it cannot."""
    if platform.machine() == machine:
        yield
        return
    folder, rule = Path("/proc/sys/fs/binfmt_misc"), Path(f"/usr/lib/binfmt.d/qemu-{machine}.conf")
    if not rule.is_file() or shutil.which("arch-test") is None:
        pytest.skip("qemu-user-static or arch-test is not installed")
    mounting = not (folder / "status").exists()
    if mounting and subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", folder]).returncode:
        pytest.skip("binfmt_misc cannot be mounted here")
    registered = folder / rule.stem
    registering = not registered.exists()
    try:
        if registering:
            (folder / "register").write_text(rule.read_text())
        yield
    finally:
        if registering:
            registered.write_text("-1")
        if mounting:
            subprocess.run(["umount", folder], check=True)


def command_of(page: Path, *words: str) -> list[str]:
    """Return the first command of a page with some words in it."""
    text = page.read_text().replace("\\\n", " ")
    (command, *_) = (
        line.strip()
        for block in re.findall(r"^ *```(?:bash|console)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if all(word in line for word in words)
    )
    return ["sh", "-c", command.removeprefix("$ ")]


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    """Return the output of a command that succeeded; fails the test otherwise."""
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def make_root(suite: str = SUITE, more: Sequence[str] = (), architecture: str = "") -> Path:
    """Return the root of a suite with PACKAGES and ``more``, of earlier runs; skips the test where there can be none.

    ``architecture``: Debian's name of another processor, such as ``arm64``.
    """
    for program in ("mmdebstrap", "bwrap", "setpriv", "git"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can make a root folder and become another user in it")
    mirror = _mirror()
    if not mirror:
        pytest.skip("apt has no mirror of Debian here")
    lines = [f"deb {mirror} {suite} main"]
    packages = (*PACKAGES, *more)
    key = hashlib.sha256(json.dumps([lines, packages, architecture]).encode()).hexdigest()[:16]
    folder = _cache() / "tests" / "bare-root"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / key
    with FileLock(folder / "lock"):
        if not root.is_dir():
            for left in folder.glob("tmp-*"):
                shutil.rmtree(left)
            temporary = folder / f"tmp-{uuid.uuid4().hex}"
            temporary.mkdir()
            (temporary / "sources.list").write_text("\n".join(lines) + "\n")
            made = subprocess.run(
                [
                    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "mmdebstrap", "--mode=root"),
                    *("--variant=minbase", f"--include={','.join(packages)}"),
                    *([f"--arch={architecture}"] if architecture else []),
                    *(f"--aptopt={option}" for option in (*_network_options(), *_OPTIONS)),
                    f'--customize-hook=chroot "$1" useradd --uid {_USER} --create-home newcomer',
                    *(suite, str(temporary / "root"), str(temporary / "sources.list")),
                ],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
                capture_output=True,
                text=True,
            )
            if made.returncode:
                shutil.rmtree(temporary)
                pytest.skip(f"no Debian root can be made here: {made.stderr.strip().splitlines()[-1:]}")
            os.replace(temporary / "root", root)
            shutil.rmtree(temporary)
    # as the network of the machine is reached now
    shutil.copy("/etc/resolv.conf", root / "etc")
    shutil.copy("/etc/hosts", root / "etc")
    if _BUNDLE.is_file():
        shutil.copy(_BUNDLE, root / _BUNDLE.relative_to("/"))
    return root


def _cache() -> Path:
    """Return megabuild's cache: a root takes minutes, and uninstalling removes it with the rest."""
    return Path(os.environ.get("MEGABUILD_CACHE") or Path.home() / ".cache" / "megabuild")


def _mirror() -> str:
    """Return the address of Debian's archive that apt uses, or an empty string."""
    given = os.environ.get("MEGABUILD_DEBIAN_MIRROR", "")
    if given:
        return given
    folder = Path("/etc/apt")
    lists = [
        folder / "sources.list",
        *folder.glob("sources.list.d/*.list"),
        *folder.glob("sources.list.d/*.sources"),
    ]
    for path in lists:
        if not path.is_file():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            address = re.match(r"(?:URIs:|deb(?: \[[^]]*\])?) *(https?://\S*/debian/?)(?:\s|$)", line)
            if address:
                return address[1]
    return ""


def _network_options() -> list[str]:
    """Return apt's options for proxies, certificates and repetitions, as lines of apt.conf."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout
    matches = [_NETWORK.match(line) for line in dump.splitlines()]
    return [f"{match[1]} {match[2]};" for match in matches if match]


def make(
    repository: Path, home: Path, *, suite: str = SUITE, more: Sequence[str] = (), architecture: str = ""
) -> BareRoot:
    """Return a root with a clone of the project in the user's home; skips the test where there can be none."""
    root = make_root(suite, more, architecture)
    cloned = subprocess.run(["git", "clone", "--quiet", str(repository), str(home / "megabuild")])
    if cloned.returncode:
        pytest.skip("this is not a clone of the repository")
    subprocess.run(["chown", "-R", f"{_USER}:{_USER}", str(home)], check=True)
    passed = {name: os.environ[name] for name in (*_PROXIES, *map(str.upper, _PROXIES)) if name in os.environ}
    machine = BareRoot(root=root, home=home, environment={**passed, **_index()})
    entered = machine.run("true")
    if entered.returncode:
        pytest.skip(f"the root cannot be entered here: {entered.stderr.strip()}")
    return machine


def _index() -> dict[str, str]:
    """Return the address of the machine's mirror of PyPI, if pip uses one here, and nothing else of its settings."""
    asked = ["python3", "-m", "pip", "config", "get", "global.index-url"]
    answer = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return {"PIP_INDEX_URL": answer} if answer.startswith("http") else {}
