"""What upstream says of a version, and for which configs it says it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from packaging.markers import InvalidMarker, Marker

from megabuild.audit.model import Finding, Kind
from megabuild.audit.specs import Spec, described
from megabuild.configs.names import PLATFORMS

_CUDA_OF_CONFIG = re.compile(r"_cuda(\d+)(\d)(?:_|$)")
_CUDA_OF_SCOPE = re.compile(r"(?:cuda|cu)[ -]?(\d{2})\.?(\d)", re.IGNORECASE)
_TORCH_OF_SCOPE = re.compile(r"PyTorch (\d+(?:\.\d+)+)")
_CUDA_TAG = re.compile(r"^cu(\d{2})(\d)$")
#: Of builds that this repository does not make.
_FOREIGN = re.compile(r"\b(xpu|rocm|win(dows)?)\b", re.IGNORECASE)
_MACHINES = {"64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A version, or a range of versions, that upstream names.

    Parameters
    ----------
    finding:
        Where it says so.
    spec:
        What it admits.
    version:
        Where it names one: ``2.1.0``, of a tag or of a commit after it.
    hard:
        The wheel's metadata: pip holds everybody to it. What upstream vendors or tests with is known to work, no more.
    configs:
        For which it holds.
    """

    finding: Finding
    spec: Spec
    version: str
    hard: bool
    configs: frozenset[str]

    @property
    def shown(self) -> str:
        """What upstream says, in its own words."""
        return self.finding.value


def claims(
    findings: Iterable[Finding], configs: Sequence[str], wheel_cuda: str, torch: str = ""
) -> tuple[Claim, ...]:
    """Return what the findings of a row claim; those that name no version claim nothing.

    Parameters
    ----------
    configs:
        Names of all that are looked at.
    wheel_cuda:
        The CUDA version that upstream's wheels on PyPI are for, ``13.0``, or an empty string.
    torch:
        The PyTorch that the recipe asks for, where it is an extension's; what upstream has for others does not count.
    """
    found = []
    for finding in findings:
        other = _TORCH_OF_SCOPE.search(finding.scope)
        if finding.trouble or (torch and other and other[1] != torch):
            continue
        where = frozenset(config for config in configs if _holds(finding, config, wheel_cuda))
        if finding.kind is Kind.REQUIREMENT:
            spec = Spec(finding.value, pep440=True)
            if spec.readable and not spec.any and where:
                found.append(Claim(finding=finding, spec=spec, version=spec.exact, hard=True, configs=where))
        elif finding.kind in (Kind.SUBMODULE, Kind.CI_PIN) and where:
            found += _soft(finding, where)
    return tuple(found)


def _soft(finding: Finding, configs: frozenset[str]) -> list[Claim]:
    value = finding.value.strip()
    if re.match(r"[<>=!~]", value):
        spec = Spec(value, pep440=True)
        if spec.readable:
            return [Claim(finding=finding, spec=spec, version=spec.exact, hard=False, configs=configs)]
        return []
    commit = finding.details.get("commit", "")
    if commit and commit.startswith(value):
        return []  # no tag to describe it by
    versions = (described(_CUDA_TAG.sub(r"\1.\2", word))[0] for word in value.split(", "))
    return [
        Claim(finding=finding, spec=Spec(f"=={version}"), version=version, hard=False, configs=configs)
        for version in versions
        if version
    ]


def is_optional(finding: Finding) -> bool:
    """Whether a requirement is one of an extra, which an installation need not have."""
    return finding.kind is Kind.REQUIREMENT and "extra" in finding.details.get("marker", "")


def cuda_of_wheel(findings: Iterable[Finding]) -> str:
    """Return the CUDA version that a wheel's requirements are for, or an empty string."""
    for finding in findings:
        if finding.kind is Kind.REQUIREMENT and re.match(r"cuda-toolkit$|nvidia-cuda-runtime", finding.name):
            numbers = re.findall(r"\d+", finding.value)
            if len(numbers) > 1:
                return ".".join(numbers[:2])
    return ""


def cuda_of(config: str) -> str:
    """Return the CUDA version in a config's name: ``13.0`` of ``linux_64_cuda130_generic``; empty for a CPU build."""
    match = _CUDA_OF_CONFIG.search(config)
    return f"{match[1]}.{match[2]}" if match else ""


def is_foreign(scope: str) -> bool:
    """Whether a scope is of builds that this repository does not make: ROCm, XPU, Windows."""
    return _FOREIGN.search(scope) is not None


def cuda_in(scope: str) -> str:
    """Return the CUDA version that a scope names: ``13.0`` of ``CUDA 13.0; linux-64``; empty where there is none."""
    match = _CUDA_OF_SCOPE.search(scope)
    return f"{match[1]}.{match[2]}" if match else ""


def platform_of(config: str) -> str:
    """Return conda's platform of a config's name: ``linux-aarch64``."""
    return next((conda for name, conda in PLATFORMS.items() if config.startswith(f"{name}_")), "")


def platforms_of(configs: Collection[str]) -> frozenset[str]:
    """Return conda's platforms of some configs."""
    return frozenset(platform_of(config) for config in configs)


def _holds(finding: Finding, config: str, wheel_cuda: str) -> bool:
    if finding.kind is Kind.REQUIREMENT:
        if re.match(r"(nvidia|cuda)-", finding.name) and cuda_of(config) != wheel_cuda:
            return False
        if "in the wheel for" in finding.scope and platform_of(config) not in finding.details.get(
            "platforms", ""
        ):
            return False
        return _marker_holds(finding.details.get("marker", ""), platform_of(config))
    if is_foreign(finding.scope):
        return False
    platforms = {platform for platform in PLATFORMS.values() if platform in finding.scope}
    if platforms and platform_of(config) not in platforms:
        return False
    named = {f"{major}.{minor}" for major, minor in _CUDA_OF_SCOPE.findall(finding.scope)}
    return not named or cuda_of(config) in named


def _marker_holds(text: str, platform: str) -> bool:
    if not text:
        return True
    system, _, machine = platform.partition("-")
    extra = re.search(r"""extra\s*==\s*["']([^"']+)""", text)
    environment = {
        "extra": extra[1] if extra else "",
        "os_name": "posix",
        "sys_platform": "darwin" if system == "osx" else "linux",
        "platform_system": "Darwin" if system == "osx" else "Linux",
        "platform_machine": _MACHINES.get(machine, machine),
        "python_version": "3.12",
        "python_full_version": "3.12.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    try:
        return Marker(text).evaluate(environment)
    except (InvalidMarker, KeyError, ValueError):
        return True
