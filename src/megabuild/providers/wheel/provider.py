"""The provider of official wheels, which are unpacked into packages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from groundwork.host_compiler import find_gcc_suffix
from megabuild.providers import catalogue, local_channel
from megabuild.providers.environment import Environment
from megabuild.providers.local.compilers import Toolchain, probe
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import Figures, LocalProvider, base_python, requirements
from megabuild.providers.wheel import torch_wheels
from megabuild.providers.wheel.torch_wheels import TorchWheels

#: The newest GCC that nvcc accepts, by the major version of CUDA: crt/host_config.h of 12.9 and of 13.0 to 13.2.
_NEWEST_GCC = {"12": 14, "13": 15}
_MEASURED = "measured with PyTorch 2.13's wheels"


class WheelProvider(LocalProvider):
    """Finds PyTorch's official wheels that fit, and downloads them unless it only surveys."""

    compiles = False
    has_nightlies = True
    cpu_figures = Figures(
        tree=0.8, package=0.3, per_python=0.2, memory=0.5, hours=0, python_hours=0.05, basis=_MEASURED
    )
    cuda_figures = Figures(
        tree=2.5, package=1.0, per_python=0.2, memory=0.5, hours=0, python_hours=0.1, basis=_MEASURED
    )

    def environment(self, *, survey: bool) -> Environment:
        """Return the wheels as PyTorch's source, with the local channel."""
        request = self.request
        config = request.config
        installed = self.interpreters()
        requested = {package.python for package in request.planned if package.python}
        wheels = torch_wheels.find(config, installed, request.cache / "wheels", requested)
        base = base_python(config, wheels.locks)
        locked = wheels.locks[base]
        (wheel,) = locked.wheels
        pythons = {python: installed[python] for python in wheels.locks if python in {*requested, base}}
        if not survey:
            torch_wheels.fetch(config, wheels, list(pythons), cache=request.cache, report=request.report)
        needs = requirements(request.planned)
        own: list[LocalPackage] = []
        toolchain = None
        if config.cuda_version is not None:
            if any(need.startswith("cuda-nvcc") for need in needs):  # before gigabytes are downloaded
                toolchain = _host_compiler(config.cuda_version)
            toolkit = torch_wheels.requirements(locked, catalogue.load().nvidia_toolkit)
            own = self.nvidia(toolkit, installed[base], survey=survey, more=wheels.more)
        values = {"torch_python_base": base}
        triton = torch_wheels.named_triton(wheel.needs(locked.environment))
        if triton:
            values["triton_version"] = triton
            needs = _with_triton(needs, triton)
        channel = local_channel.make(
            request, needs, pythons, survey=survey, extra=own, more=wheels.more, toolchain=toolchain
        )
        made = self.of_channel(channel, wheels.locks, values, self._absent(wheels, pythons))
        return replace(
            made,
            source=torch_wheels.folder(config, request.cache),
            staging_source={wheel.file_name: wheel.sha256},
            left_out=wheels.left_out,
            notes=(*made.notes, *wheels.notes, f"libtorch is made from {wheel.file_name}"),
        )

    def _absent(self, wheels: TorchWheels, pythons: Iterable[str]) -> dict[str, int]:
        """Return the sizes of PyTorch's wheels that are not downloaded yet, by sha256."""
        folder = torch_wheels.folder(self.request.config, self.request.cache)
        absent: dict[str, int] = {}
        for python in pythons:
            for wheel in wheels.locks[python].wheels:
                if not (folder / python / wheel.file_name).is_file():
                    absent[wheel.sha256] = wheel.size
        return absent


def _host_compiler(cuda: str) -> Toolchain | None:
    """Return the newest GCC of this machine that nvcc accepts; None if any is accepted."""
    newest = _NEWEST_GCC.get(cuda.partition(".")[0])
    if newest is None:
        return None
    return probe(suffix=find_gcc_suffix(newest, os.environ.get("PATH", os.defpath)))


def _with_triton(needs: Iterable[str], version: str) -> list[str]:
    """Replace the config's Triton, which the rendered packages require, by the one that the wheel requires."""
    replaced: list[str] = []
    for need in needs:
        if need.startswith("triton "):
            need = f"triton =={version}"
        replaced.append(need)
    return replaced
