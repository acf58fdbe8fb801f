"""Compiling a few lines before compiling for hours.

The program goes through everything the real build will go through: the isolation, its mounts, the channel, the engine,
the compiler's activation. A missing mount or a compiler that cannot link shows here within seconds.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

from megabuild.build.failure import excerpt
from megabuild.build.place import View
from megabuild.configs.render import PlannedPackage
from megabuild.engine import channel_folder
from megabuild.engine.job import Job
from megabuild.engine.logs import LogFollower, LogLine
from megabuild.engine.supervisor import run_worker
from megabuild.errors import PreflightError

_SCRIPT = r"""
cat > check.cpp <<'EOF'
#include <iostream>
#include <vector>
int main() {
  std::vector<int> answers{42};
  std::cout << "::megabuild:: answer " << answers.front() << std::endl;
}
EOF
echo "::megabuild:: compiler $("${CXX:?no C++ compiler is set}" --version | head -n 1)"
$CXX ${CXXFLAGS:-} check.cpp -o check ${LDFLAGS:-}
./check
mkdir -p "$PREFIX/share/megabuild-check"
echo done > "$PREFIX/share/megabuild-check/done"
"""
_COMPILERS = re.compile(r"(gcc|gxx|clang|clangxx|sysroot|macosx_deployment_target)_")
_ANSWER, _COMPILER = "::megabuild:: answer 42", "::megabuild:: compiler "


def check(
    planned: Sequence[PlannedPackage],
    seen: View,
    template: Job,
    *,
    on_log: Callable[[LogLine], None],
    on_tick: Callable[[], None],
) -> str:
    """Compile and run a small program the way the build will compile.

    Parameters
    ----------
    planned:
        The plan; the compilers are those of its staging, or of its first package.
    seen:
        The run from inside.
    template:
        The build's own job.
    on_log:
        Told every line.
    on_tick:
        Called now and then; what it raises ends the check.

    Returns
    -------
    str
        The compiler's own name and version; empty where nothing of the plan is compiled with a C++ compiler.

    Raises
    ------
    PreflightError
        It does not work; the message shows what the compiler said.
    """
    tools = next((package.staging_build or package.build for package in planned if package.build), ())
    specs = [spec for spec in tools if _COMPILERS.match(spec)]
    if not any("xx_" in spec for spec in specs):
        return ""
    folder = seen.place.state / "preflight"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    recipe = {
        "package": {"name": "megabuild-check", "version": "1"},
        "build": {"number": 0, "script": [_SCRIPT]},
        "requirements": {"build": specs},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))  # JSON is YAML
    inside = f"{seen.place.state_inside}/preflight"
    small = replace(
        template, recipe=f"{inside}/recipe.yaml", output_dir=f"{inside}/out", test="skip", leftovers=(),
        keep_build=True, variant_config=(),
    )  # fmt: skip
    follower, lines = LogFollower(folder), list[str]()

    def tick(*, last: bool = False) -> None:
        for line in follower.poll(last=last):
            lines.append(line.text)
            on_log(line)
        on_tick()

    try:
        with follower:
            outcome = run_worker(seen.place, small, on_line=lines.append, on_tick=tick)
            tick(last=True)
    finally:
        channel_folder.remove(folder)
    if not outcome.ok or _ANSWER not in lines:
        raise PreflightError(
            f"the toolchain does not compile a small program: {outcome.message.splitlines()[0]}\n{excerpt(lines)}",
            "the build environment has no working C++ compiler: see the provider's notes in --plan",
        )
    return next((line.removeprefix(_COMPILER) for line in lines if line.startswith(_COMPILER)), "")
