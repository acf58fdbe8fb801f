"""The provider of environments that cross-compile with Debian's compilers, for its own configs and for rehearsals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from megabuild.providers import local_channel
from megabuild.providers.debian import libraries
from megabuild.providers.debian import root as debian_root
from megabuild.providers.debian.foreign import PYTHONS, Foreign
from megabuild.providers.debian.provider import SOURCE_INSIDE, DebianProvider, keys_of_root
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Environment
from megabuild.providers.local import compilers, cross_python, interpreters
from megabuild.providers.local.compilers import Toolchain, probe
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local_channel import LocalChannel, Side
from megabuild.providers.provider import base_python, build_requirements, host_requirements


class CrossDebianProvider(DebianProvider):
    """Makes a root folder of this machine's programs and of another processor's libraries and Pythons."""

    def environment(self, *, survey: bool) -> Environment:
        """Return the root and a channel for both platforms.

        Raises ProviderError: This machine does not cross-compile for the config's platform, or has no usable Python.
        """
        request = self.request
        config = request.config
        foreign = self._foreign()
        cache = request.cache / "debian"
        native = interpreters.some_of(config.pythons, request.report)
        pythons = [python for python in config.pythons if python in native and python in PYTHONS]
        if not pythons:
            raise ProviderError(
                f"{config.name}: none of this machine's Pythons is among Debian's for {config.platform}"
                f" ({', '.join(PYTHONS)})",
                f"run: uv python install {list(PYTHONS)[-1]}",
            )
        base = base_python(config, pythons)
        left_out = _left_out(config.pythons, config.platform)
        if survey and debian_root.find(cache, foreign=foreign) is None:
            return replace(self.plan_root(pythons, base), left_out=left_out)
        root = debian_root.make(cache, request.report, foreign=foreign)
        channel = self._channel(root, foreign, native, pythons, survey=survey)
        made = self.of_channel(channel, pythons, {"torch_python_base": base})
        environment = replace(
            made,
            root=root.path,
            emulator=foreign.emulator(root.path),
            of_root=keys_of_root(channel.packages),
            left_out=left_out,
            virtual_packages={**made.virtual_packages, "__glibc": channel.toolchain.glibc},
            notes=(*made.notes, f"cross compilers and libraries: Debian {root.release}"),
        )
        if request.rehearsal:
            return environment
        source = {"torch_source_path": (SOURCE_INSIDE,)}
        return replace(environment, source=root.source, overrides={**environment.overrides, **source})

    def _foreign(self) -> Foreign:
        """Return the processor to compile for.

        Raises ProviderError: This machine cannot.
        """
        config = self.request.config
        here = machine_platform()
        foreign = Foreign.of(config.platforms)
        if foreign is None or config.build_platform != here:
            raise ProviderError(
                f"{config.name}: cross-compiled on {config.build_platform} only; this machine is {here}",
                f"build this config on a {config.build_platform} or {config.platform} machine",
            )
        if config.cuda_version is not None:
            raise ProviderError(
                f"{config.name}: Debian has no cross compiler for CUDA",
                f"choose a config for CPUs, or build this one on a {config.platform} machine",
            )
        return foreign

    def _channel(
        self,
        root: DebianRoot,
        foreign: Foreign,
        native: Mapping[str, Interpreter],
        pythons: Iterable[str],
        *,
        survey: bool,
    ) -> LocalChannel:
        request = self.request
        platforms = request.config.platforms
        enter = debian_root.enter(root.path)
        own_compiler = probe(root=root.path, enter=enter)
        cross_compiler = probe(root=root.path, enter=enter, triplet=foreign.triplet)
        own = compilers.cross_packages(cross_compiler, own_compiler, platforms)
        own.append(cross_python.package(platforms))
        needs = host_requirements(request.planned)
        if any(need.split()[0] == libraries.NAME for need in needs):
            own.append(libraries.package(root, cross_compiler.glibc, platforms.target))
        running = {python: native[python] for python in pythons}
        others = foreign.interpreters(root.path)

        def side(
            platform: str, wanted: list[str], of_platform: Mapping[str, Interpreter], toolchain: Toolchain
        ) -> Side:
            packages = [package for package in own if package.subdir in (platform, "noarch")]
            return Side(
                platform=platform,
                needs=wanted,
                interpreters=of_platform,
                toolchain=toolchain,
                own=packages,
                running=running,
            )

        for_build = [*build_requirements(request.planned), cross_python.CROSSENV]
        build = side(platforms.build, for_build, running, own_compiler)
        host = side(platforms.target, needs, {python: others[python] for python in running}, cross_compiler)
        only = self.needed_pythons(running, base_python(request.config, running))
        return local_channel.make_of_sides(request, [build, host], survey=survey, only=only)


def _left_out(pythons: Iterable[str], platform: str) -> dict[str, str]:
    """Return the Pythons that no used release of Debian has, with the reason."""
    has = ", ".join(f"{python} ({suite})" for python, suite in PYTHONS.items())
    reason = f"for {platform}, Debian's {has} are used"
    return {python: reason for python in pythons if python not in PYTHONS}
