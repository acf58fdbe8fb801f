"""Which PyTorch a run is for: checks the options, and returns the config for it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from groundwork.errors import UsageError
from groundwork.user_folders import expanded
from megabuild.configs.config import Config
from megabuild.configs.overrides import other_torch, without_channels
from megabuild.configs.tarballs import TARBALLS


def torch_index(config: Config, index: str | None) -> str | None:
    """Return the index or folder with PyTorch's wheels that was named."""
    if index is None:
        return None
    if config.provider != "wheel":
        raise UsageError(f"{config.name} takes no wheels of PyTorch", "leave out --torch-index")
    if "://" in index:
        return index
    folder = expanded(index)
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {folder}", "--torch-index takes an address or a folder with wheels"
        )
    return str(folder)


def with_provider(config: Config, provider: str | None) -> Config:
    """Return the config with the provider that was asked for, which configs of this project's matrix have already.

    Their recipe ignores the channels when it names packages; another's cannot be built from other ones under the names
    that conda-forge's have.
    """
    if provider is None or provider == config.provider:
        elsewhere = bool(os.environ.get("CONDA_CHANNEL_ALIAS", "").strip())
        return without_channels(config) if elsewhere and not config.torch_version else config
    if config.has_provider:
        raise UsageError(
            f"{config.name} is for the provider {config.provider}",
            "leave out --provider; --list shows the others",
        )
    return replace(without_channels(config), provider=provider)


def with_torch(
    config: Config,
    torch: str | None,
    source: Path | None,
    digest: str | None,
    triton: str | None = None,
    *,
    rehearse: bool,
) -> Config:
    """Return the config for the PyTorch that was asked for, where its provider can have that."""
    compiles = config.provider != "wheel"
    if not config.torch_version and (torch, source, digest, triton) != (None,) * 4:
        raise UsageError(
            f"the recipe of {config.name} takes no version of PyTorch from its configs",
            "leave out --torch, --torch-source, --torch-sha256 and --triton",
        )
    if source is not None and not compiles:
        raise UsageError(
            f"{config.name} compiles no PyTorch, it takes wheels apart", "leave out --torch-source"
        )
    if digest is not None and (not compiles or (source is None and torch is None)):
        raise UsageError("--torch-sha256 has no effect here", "it goes with --torch-source, or with --torch")
    if triton is not None:
        if not compiles or torch is None or config.cuda_version is None:
            raise UsageError(
                "--triton has no effect here", "it goes with --torch and a CUDA config that compiles"
            )
        if not re.fullmatch(r"\d+(\.\d+)+", triton):
            raise UsageError(f"'{triton}' is not a release of Triton", "write it like '3.8.0'")
    if torch is None:
        return config
    downloads = config.provider == "conda-forge" and source is None
    if downloads and digest is None and torch in TARBALLS and torch != config.torch_version:
        digest = TARBALLS[torch].sha256
    own = torch == config.torch_version
    if compiles and source is None and not rehearse and not own and not (downloads and digest):
        if not downloads:
            raise UsageError(
                f"{config.name} knows no source of PyTorch {torch}", "name one with --torch-source"
            )
        other_torch(config, torch, None)  # says what is wrong with a version that is none
        raise UsageError(
            f"{config.name} knows no source of PyTorch {torch}: no sha256 of its tarball is known",
            f"get https://github.com/pytorch/pytorch/releases/download/v{torch}/pytorch-v{torch}.tar.gz and name it"
            " with --torch-source, or what sha256sum says of it with --torch-sha256",
        )
    return other_torch(config, torch, None if source else digest)
