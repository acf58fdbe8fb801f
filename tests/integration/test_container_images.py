"""Images made of the Containerfiles, by podman."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from engines import client
from tiny import make_channel, make_package, publish

from groundwork.channel import Channel
from megabuild.plan.choose_isolation import rehearsal_image
from megabuild.store import published

CONFIG = "linux_64_cuda132_wheel"


@pytest.mark.parametrize(
    ("name", "question"), [("torch-and-pyg", "ARCHS is not set"), ("built-packages", "CONFIG is not set")]
)
def test_without_what_only_a_user_knows_it_ends_before_anything_is_fetched(
    name: str,
    question: str,
    repository: Path,
    podman_storage: Mapping[str, str],
    tiny_image: Callable[[str, Mapping[str, str]], str],
) -> None:
    image = tiny_image("podman", podman_storage)
    file = repository / "containers" / f"{name}.Containerfile"
    # without a container: crun starts none on a machine with both versions of control groups
    words = ("build", "--isolation=chroot", "-f", str(file), "--build-arg", f"BASE={image}", str(repository))
    done = client("podman", podman_storage, *words)
    assert done.returncode != 0
    assert f"\nerror: {question}" in done.stdout


@pytest.mark.long
def test_packages_that_were_built_become_an_image(
    podman_image: Mapping[str, str], repository: Path, tmp_path: Path
) -> None:
    """Needs the network: what Debian's archive and PyPI have is fetched."""
    beside = make_channel(tmp_path / "beside", (("python", "3.12.1", "0"), ("tool", "1.0", "0")))
    content = {"bin/hello": "#!/bin/sh\necho hello from $GREETER\n"}
    content |= {"etc/conda/activate.d/greet.sh": "export GREETER=me\n"}
    folder = tmp_path / "made" / "linux-64"
    made = [
        make_package(folder, "greeting", "1.0", "0", content, depends=["python", "tool"]),
        make_package(folder, "for_gpu", "1.0", "0", depends=["__cuda"]),
    ]
    channel = tmp_path / "packages" / CONFIG
    publish(channel, made)
    published.note_channels(channel, [Channel.of_folder(beside)])
    image, certificates = "megabuild-test:built", os.environ.get("PIP_CERT")
    more = (
        ["-v", f"{certificates}:/certs.pem:ro", "--build-arg", "PIP_CERT=/certs.pem"] if certificates else []
    )
    done = client(
        "podman", podman_image, "build", "--network=host", "--layers=false", *more, "-t", image,
        "-f", str(repository / "containers" / "built-packages.Containerfile"),
        "--build-arg", f"BASE={rehearsal_image()}", "--build-arg", f"CONFIG={CONFIG}", "--build-arg", "CUDA=13.2",
        "--build-arg", "PACKAGES=greeting for_gpu",
        "--build-context", f"built={channel}", "--build-context", f"beside={beside}", str(repository),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    shown = client("podman", podman_image, "run", "--rm", "--network=none", image, "sh", "/opt/env/bin/hello")
    assert shown.stdout == "hello from me\n"
