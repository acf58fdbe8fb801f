"""The wheel provider: PyTorch's official wheels, and a local channel."""

from __future__ import annotations

from megabuild.providers import catalogue, local_channel
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.provider import LocalProvider, base_python, machine_values, requirements
from megabuild.providers.pypi import torch


class WheelProvider(LocalProvider):
    """Finds the wheels that fit, and downloads them unless it is only for a plan."""

    def provide(self) -> Environment:
        """Return the wheels as PyTorch's source, with the local channel."""
        request, config = self.request, self.request.config
        pythons = self.interpreters()
        requested = {package.python for package in request.planned if package.python}
        found = torch.find(config, pythons, request.cache / "wheels", requested)
        base = base_python(config, found.locks)
        locked = found.locks[base]
        (wheel,) = locked.wheels
        here = {python: pythons[python] for python in found.locks if python in requested or python == base}
        source = torch.folder(config, request.cache)
        if not request.plan:
            torch.fetch(config, found, list(here), cache=request.cache, report=request.report)
        own: list[LocalPackage] = []
        locks = [found.locks[python] for python in here]
        if config.cuda_version is not None:
            toolkit = torch.requirements(locked, catalogue.load().nvidia_toolkit)
            nvidia, own = self.nvidia(toolkit, pythons[base], more=found.more)
            locks.append(nvidia)
        # what was rendered names the config's Triton; the wheel knows better
        triton = torch.named_triton(wheel.needs(locked.environment))
        needs = requirements(request.planned)
        if triton:
            needs = [f"triton =={triton}" if need.startswith("triton ") else need for need in needs]
        made = local_channel.make(
            needs,
            platform=config.platform,
            interpreters=here,
            cache=request.cache,
            stand_ins=False,
            report=request.report,
            extra=own,
            more=found.more,
            plan=request.plan,
        )
        prepared = self.to_prepare(made, *locks)
        linked = [
            source / python / wheel.file_name for python in here for wheel in found.locks[python].wheels
        ]
        prepared["ready"] &= all(path.is_file() for path in linked)
        overrides = self.overrides(machine_values(made, needs))
        of_wheel = {"torch_python_base": base, **({"triton_version": triton} if triton else {})}
        return Environment(
            channels=(made.path,),
            source=source,
            staging_source={wheel.file_name: wheel.sha256} if request.plan else source / base,
            pythons=tuple(found.locks),
            left_out=found.left_out,
            overrides={**overrides, **self.overrides(of_wheel)},
            virtual_packages=virtual_gpu(config),
            **prepared,
            notes=(*self.notes(overrides), *found.notes, f"libtorch is made from {wheel.file_name}"),
        )
