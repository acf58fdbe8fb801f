"""The provider of official wheels, which are unpacked into packages."""

from __future__ import annotations

import os
from dataclasses import replace
from types import MappingProxyType

from groundwork.host_compiler import find_gcc_suffix
from megabuild.providers import catalogue, local_channel
from megabuild.providers.environment import Environment
from megabuild.providers.local.compilers import probe
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import Figures, LocalProvider, base_python, requirements
from megabuild.providers.wheel import torch_wheels

#: The newest GCC that nvcc accepts, by the major version of CUDA: crt/host_config.h of 12.9 and of 13.0 to 13.2.
_NEWEST_GCC = {"12": 14, "13": 15}
_MEASURED = "measured with PyTorch 2.13's wheels"


class WheelProvider(LocalProvider):
    """Finds PyTorch's official wheels that fit, and downloads them unless it only surveys."""

    compiles = False
    has_nightlies = True
    figures = MappingProxyType(
        {
            "cpu": Figures(0.8, 0.3, 0.2, 0.5, 0, 0.05, _MEASURED),
            "cuda": Figures(2.5, 1.0, 0.2, 0.5, 0, 0.1, _MEASURED),
        }
    )

    def environment(self, *, survey: bool) -> Environment:
        """Return the wheels as PyTorch's source, with the local channel."""
        request, config = self.request, self.request.config
        pythons = self.interpreters()
        requested = {package.python for package in request.planned if package.python}
        wheels = torch_wheels.find(config, pythons, request.cache / "wheels", requested)
        base = base_python(config, wheels.locks)
        locked = wheels.locks[base]
        (wheel,) = locked.wheels
        here = {python: pythons[python] for python in wheels.locks if python in requested or python == base}
        source = torch_wheels.folder(config, request.cache)
        if not survey:
            torch_wheels.fetch(config, wheels, list(here), cache=request.cache, report=request.report)
        own: list[LocalPackage] = []
        toolchain = None
        if config.cuda_version is not None:
            newest = _NEWEST_GCC.get(config.cuda_version.partition(".")[0])
            compiles = any(need.startswith("cuda-nvcc") for need in requirements(request.planned))
            if newest and compiles:  # before gigabytes are downloaded
                toolchain = probe(suffix=find_gcc_suffix(newest, os.environ.get("PATH", os.defpath)))
            toolkit = torch_wheels.requirements(locked, catalogue.load().nvidia_toolkit)
            own = self.nvidia(toolkit, pythons[base], survey=survey, more=wheels.more)
        # the rendered packages require the config's Triton; the wheel's own requirement replaces it
        triton = torch_wheels.named_triton(wheel.needs(locked.environment))
        needs = requirements(request.planned)
        if triton:
            needs = [f"triton =={triton}" if need.startswith("triton ") else need for need in needs]
        channel = local_channel.make(
            request, needs, here, survey=survey, extra=own, more=wheels.more, toolchain=toolchain
        )
        values = {"torch_python_base": base, **({"triton_version": triton} if triton else {})}
        absent = {
            file.sha256: file.size
            for python in here
            for file in wheels.locks[python].wheels
            if not (source / python / file.file_name).is_file()
        }
        made = self.of_channel(channel, wheels.locks, values, absent)
        return replace(
            made,
            source=source,
            staging_source={wheel.file_name: wheel.sha256},
            left_out=wheels.left_out,
            notes=(*made.notes, *wheels.notes, f"libtorch is made from {wheel.file_name}"),
        )
