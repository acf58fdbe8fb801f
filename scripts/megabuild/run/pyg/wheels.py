"""Prebuilt wheels for a run's extensions: asked for once per extension and Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from megabuild.configs.overrides import complete
from megabuild.prebuilt.choose import Index, choose
from megabuild.prebuilt.index import INDEX
from megabuild.run.options import Options
from megabuild.run.place import cache_folder
from megabuild.run.pyg.planning import Choice, Chooser


def chooser(
    options: Options, overrides: Mapping[str, tuple[str, ...]], report: Callable[[str], None]
) -> Chooser:
    """Return what looks for a wheel of an extension for one Python.

    Parameters
    ----------
    options:
        Name the config, the index and the cache.
    overrides:
        Variant values in place of the config's.
    report:
        Told what takes time.
    """
    from megabuild.prebuilt.inside import look_inside  # not before: it takes a moment to import

    config = options.config
    variant = {**config.variant, **complete(config, overrides)}
    index = Index(options.pyg_index or INDEX)
    archs = archs_of(variant)

    def look(extension: str, python: str) -> Choice:
        return choose(
            extension,
            python=python,
            torch_version=config.torch_version,
            cuda_version=config.cuda_version,
            platform=config.platform,
            source=index,
            cache=cache_folder(options, os.environ),
            archs=archs,
            report=report,
            judge=look_inside,
            version=version_of(extension, variant),
            glibc=variant.get("c_stdlib_version", ("2.28",))[0],
        )

    return look


def archs_of(variant: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the CUDA architectures of a variant, none for a CPU build."""
    text = variant.get("torch_cuda_arch_list", ("None",))[0]
    return () if text in ("", "None") else tuple(text.split(";"))


def version_of(extension: str, variant: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the version of an extension that the matrix names."""
    key = f"{extension.replace('pytorch_', 'pyg_').replace('-', '_')}_version"
    return next(iter(variant.get(key, ())), None)
