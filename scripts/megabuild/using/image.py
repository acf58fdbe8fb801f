"""The GPUs of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import re
import subprocess


def archs_here() -> str:
    """Return the architectures of this machine's NVIDIA GPUs, ``9.0;12.0``, or an empty string."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return ";".join(sorted(_told_by_driver(), key=float))
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = {line.strip() for line in done.stdout.splitlines() if re.fullmatch(r"\d+\.\d", line.strip())}
    return ";".join(sorted(found, key=float)) if done.returncode == 0 else ""


def _told_by_driver() -> set[str]:
    """Ask the driver itself: a container may have its library without nvidia-smi."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
        if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
            for device in range(count.value):
                # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
                digits = [ctypes.c_int(), ctypes.c_int()]
                for digit, attribute in zip(digits, (75, 76), strict=True):
                    driver.cuDeviceGetAttribute(ctypes.byref(digit), attribute, device)
                found.add(f"{digits[0].value}.{digits[1].value}")
    return found
