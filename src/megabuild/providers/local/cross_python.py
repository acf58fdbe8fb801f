"""A Python that runs on this machine and answers for another one, by PyPI's crossenv, as conda-forge's cross-python."""

from __future__ import annotations

from pathlib import Path

from megabuild.configs.platforms import Platforms
from megabuild.providers.local.compilers import MACHINES
from megabuild.providers.local.package import LocalPackage

#: The package from PyPI that it requires.
CROSSENV = "crossenv"
#: Beginning of the package's name; the target's platform follows.
NAME = "cross-python_"

#: Runs in a build, after the compilers' scripts. Both environments have the same X.Y of Python. $PREFIX/bin/python then
#: runs the build environment's Python with the host environment's facts. It imports compiled modules of the build
#: environment, since those of the host environment do not run here, and other modules of either.
_SCRIPT = """\
if [ "${{CONDA_BUILD:-0}}" = 1 ] && [ ! -d "$BUILD_PREFIX/venv" ]; then
  _MB_PYTHON=$(readlink -f "$BUILD_PREFIX/bin/python")
  _MB_NAME=${{_MB_PYTHON##*/}}
  for _MB_FACTS in "$PREFIX/lib/$_MB_NAME"/_sysconfigdata*{machine}*.py; do break; done
  PYTHONPATH= "$_MB_PYTHON" -m crossenv "$PREFIX/bin/python" "$BUILD_PREFIX/venv" --without-pip \\
    --sysconfigdata-file "$_MB_FACTS" --machine {machine} --cc "$CC" --cxx "$CXX" --ar "$AR"
  _MB_VENV=$BUILD_PREFIX/venv
  sed -i "s|^executable = .*|executable = '$PREFIX/bin/python'|" "$_MB_VENV/lib/sys-patch.py"
  _MB_PROGRAM=$(readlink -f "$PREFIX/bin/python")
  rm -f "$_MB_PROGRAM"  # perhaps a link into a cache, whose file must stay
  sed -e 's|^extra_envs = .*|extra_envs = []|' \\
    -e "s|'$_MB_VENV/lib', |&'$BUILD_PREFIX/lib/$_MB_NAME/site-packages', |" \\
    "$_MB_VENV/cross/bin/python" >"$_MB_PROGRAM"
  chmod 755 "$_MB_PROGRAM"
  unset _MB_PYTHON _MB_NAME _MB_FACTS _MB_VENV _MB_PROGRAM
fi
"""


def package(platforms: Platforms) -> LocalPackage:
    """Describe the package, whose name ends with the target's platform."""
    script = _SCRIPT.format(machine=MACHINES[platforms.target])

    def fill(prefix: Path) -> None:
        folder = prefix / "etc" / "conda" / "activate.d"
        folder.mkdir(parents=True)
        # "~" sorts the script after the compilers', which set CC
        (folder / f"~{NAME}{platforms.target}.sh").write_text(script)

    return LocalPackage(
        name=f"{NAME}{platforms.target}",
        version="1",
        platform=platforms.build,
        depends=(CROSSENV, "python"),
        inputs={"script": script},
        fill=fill,
        summary=f"Python for builds that cross-compile for {platforms.target}",
    )
