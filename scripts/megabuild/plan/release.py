"""What a release of PyTorch other than the matrix's requires: its Triton, and its Pythons.

Read from the source that the user brings, else from the release's official wheels. Where neither can be read the user
must name them: the matrix's values are those of its own release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from groundwork.errors import ProviderError, UsageError
from groundwork.network.wheel_contents import required, requires_python
from megabuild.configs.tarballs import TARBALLS, UPSTREAM_CUDA
from megabuild.plan.options import Options
from megabuild.plan.torch_source import SourceTree
from megabuild.providers.pypi import torch


@dataclass(frozen=True, kw_only=True)
class ReleaseNeeds:
    """What a release needs."""

    triton: str | None = None  #: the version of Triton in place of the config's
    #: Pythons of the config that it is not for, with the reason
    left_out: Mapping[str, str] = field(default_factory=dict)


def find_needs(options: Options, tree: SourceTree | None, report: Callable[[str], None]) -> ReleaseNeeds:
    """Find out what the requested release, in a tree where the user brings one, needs other than the config.

    Raises UsageError: What the release needs is unknown, and the user did not name it.
    """
    config = options.config
    if config.provider == "wheel" or not config.torch_version:
        return ReleaseNeeds()  # every wheel has its own metadata; other recipes name what they need
    cuda, version = config.cuda_version is not None, config.torch_version
    triton = options.triton or (tree.triton if tree else None)
    pythons = tree.pythons if tree else None
    if options.torch and not options.rehearse and (pythons is None or (cuda and triton is None)):
        report(f"reading what PyTorch {version} requires")
        reason = "its wheel's metadata do not name it"
        try:
            content = torch.of_release(config, options.cache / "wheels")
            triton = triton or torch.named_triton(required(content))
            pythons = pythons or requires_python(content)
        except ProviderError as error:
            reason = error.message
        ask = ["its Triton with --triton"] if cuda and triton is None else []
        ask += ["the Pythons to build with --python"] if pythons is None and not options.pythons else []
        if ask:
            raise UsageError(
                f"what PyTorch {version} requires could not be read: {reason}", f"name {' and '.join(ask)}"
            )
    return ReleaseNeeds(triton=triton if cuda else None, left_out=_unsupported(options, pythons or ""))


def notes(options: Options) -> list[str]:
    """Return what is to be known about the release before hours are spent on it."""
    config = options.config
    found: list[str] = []
    if options.upstream_tests and options.rehearse:
        found.append("PyTorch's own tests are left out: the model has none")
    if config.provider != "conda-forge" or options.rehearse or not config.torch_version:
        return found
    version = config.torch_version
    known, digest = TARBALLS.get(version), config.variant.get("torch_sha256", ("None",))[0]
    if options.torch_source is None and known and not known.confirmed and digest == known.sha256:
        found.append(
            f"the sha256 of PyTorch {version}'s tarball is from {known.source}: "
            "should the download be refused, compare both, and name the right one with --torch-sha256"
        )
    built = UPSTREAM_CUDA.get(version.rpartition(".")[0], ())
    if built and config.cuda_version and config.cuda_version not in built:
        found.append(
            f"upstream compiles PyTorch {version} for CUDA {', '.join(built)}, "
            f"and tests no compile for {config.cuda_version}"
        )
    return found


def _unsupported(options: Options, specifiers: str) -> dict[str, str]:
    """Return the Pythons of the config that a release is not for."""
    config = options.config
    try:
        specifier = SpecifierSet(specifiers)
    except InvalidSpecifier as error:
        raise UsageError(
            f"PyTorch {config.torch_version} is for Python '{specifiers}', which is not a version specifier",
            "correct requires-python in its pyproject.toml",
        ) from error
    return {
        python: f"PyTorch {config.torch_version} requires Python {specifiers}"
        for python in config.pythons
        if not specifier.contains(f"{python.removesuffix('t')}.99")  # any patch release
    }
