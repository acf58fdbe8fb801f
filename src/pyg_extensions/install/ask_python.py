"""Print the facts about the Python that runs this script, its PyTorch and its packages as one JSON document.

Runs in the user's environment: standard library only, Python 3.8 or newer. No installed package may make it fail.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
import sysconfig
from typing import Any


def _torch() -> dict[str, Any]:
    import torch

    facts = {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
    }
    try:
        facts["archs"] = (torch._C._cuda_getArchFlags() or "").split()
    except Exception:  # a build without CUDA has no such function
        facts["archs"] = []
    try:
        facts["devices"] = _devices(torch)
    except Exception:  # a driver that does not match PyTorch
        facts["devices"] = []
    return facts


def _devices(torch: Any) -> list[str]:
    devices: list[str] = []
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(number)
            devices.append(f"{major}.{minor}")
    return devices


def _distributions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        folder = os.path.basename(str(getattr(distribution, "_path", "")))
        try:
            name = distribution.metadata["Name"]
            version = distribution.version
        except Exception:  # damaged metadata
            continue
        if name and not folder.startswith("~"):  # left by an interrupted pip
            versions.setdefault(re.sub(r"[-_.]+", "_", name).lower(), version)
    return versions


def _glibc() -> str:
    library, version = platform.libc_ver()
    if library != "glibc":
        return ""
    return version


def _is_managed() -> bool:
    """Return whether this is the system's own Python, into which pip must not install (PEP 668)."""
    marker = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    return sys.prefix == sys.base_prefix and os.path.exists(marker)


def _main() -> None:
    torch: dict[str, Any] | None = None
    problem = ""
    try:
        torch = _torch()
    except BaseException as error:  # also SystemExit
        problem = f"{type(error).__name__}: {error}"
    facts = {
        "prefix": sys.prefix,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "platform": f"{sys.platform}-{platform.machine()}",
        "glibc": _glibc(),
        "site": sysconfig.get_path("platlib"),
        "base_prefix": sys.base_prefix,
        # both folders have Python's headers: pyconfig.h may be apart from the others
        "include": sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")}),
        "managed": _is_managed(),
        "distributions": _distributions(),
        "torch": torch,
        "torch_problem": problem,
    }
    print("\n" + json.dumps(facts))


_main()
