"""The command line that does a run once more, from wherever the repository lies."""

from __future__ import annotations

import shlex

from megabuild.plan.options import Options

_REPEATED = (("--python", "pythons"), ("--extension", "extensions"))
_VALUES = (
    ("--torch", "torch"), ("--torch-index", "torch_index"), ("--torch-source", "torch_source"),
    ("--torch-sha256", "torch_sha256"), ("--triton", "triton"), ("--engine", "engine"), ("--jobs", "cpu_count"),
    ("--optimization", "optimization"), ("--pyg-index", "pyg_index"), ("--pyg-sources", "pyg_sources"),
    ("--pyg-pin", "pyg_pin"), ("--arch-list", "arch_list"), ("--distribute", "distribute"),
)  # fmt: skip
_FLAGS = (
    ("--rehearse", "rehearse"),
    ("--keep-going", "keep_going"),
    ("--upstream-tests", "upstream_tests"),
    ("--keep-work", "keep_work"),
)


def command(options: Options) -> str:
    """Return it, for a shell; what was left to the defaults is left to them."""
    words = ["python3", "build-locally.py", options.config.name]
    if not options.own:
        words += ["--root", str(options.root)]
        words += ["--provider", "local"] if options.config.provider == "local" else []
    words += [flag for flag, name in _FLAGS if getattr(options, name)]
    for flag, name in _REPEATED:
        words += [word for value in getattr(options, name) for word in (flag, str(value))]
    for flag, name in _VALUES:
        value = getattr(options, name)
        words += [flag, str(value)] if value is not None else []
    words += ["--pyg", options.pyg] if options.pyg != "auto" else []
    words += ["--memory", f"{options.memory / 1e9:g}"] if options.memory is not None else []
    if options.output != options.root / "output":
        words += ["--output", str(options.output)]
    return shlex.join(words)
