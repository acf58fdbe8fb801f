"""The CUDA architectures that libtorch is built for, per CUDA version: the lists of conda_build_config.yaml."""

from __future__ import annotations

from megabuild.configs.config import Config
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit.archs import split
from pin_audit.facts import RecipeArchs, Scope, SourceOutcome, Where
from pin_audit.recipe_lines import key_lines
from pin_audit.request import AuditRequest

SOURCE = "recipe_archs"
_KEY = "torch_cuda_arch_list"


def read(request: AuditRequest) -> SourceOutcome:
    """Return the lists of the configs; an extension takes libtorch's, and a feedstock's are not read."""
    if request.foreign or request.target.package != "pytorch":
        return SourceOutcome(source=SOURCE, trouble="no lists are read for it", applies=False)
    lines = key_lines(request.root).get(_KEY, {})
    alike: dict[tuple[str, str], list[Config]] = {}
    configs = [config for config in request.configs if config.cuda_version]
    for config in configs:
        alike.setdefault((config.cuda_version or "", config.variant.get(_KEY, ("",))[0]), []).append(config)
    facts = []
    for (cuda, archs), having in sorted(alike.items()):
        here = {config.platform for config in having}
        # if other platforms with this CUDA version have another list
        elsewhere = {config.platform for config in configs if config.cuda_version == cuda} - here
        names, platforms = tuple(config.name for config in having), tuple(sorted(here)) if elsewhere else ()
        holds = Scope(configs=names, platforms=platforms, cuda=(cuda,))
        where = Where(file=MATRIX_FILE, line=lines.get(archs))
        facts.append(RecipeArchs(name=f"CUDA {cuda}", archs=split(archs), holds=holds, where=where))
    return SourceOutcome(source=SOURCE, facts=tuple(facts))
