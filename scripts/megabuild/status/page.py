"""One HTML page on a run, from its trace and its record: a lane for every task, and the table of packages."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2

from groundwork.errors import ConfigError, IntegrityError
from groundwork.text import duration, size
from megabuild.status.trace import SUFFIX

#: Narrower spans would not be seen.
_LEAST_PERCENT = 0.05


def run_page(folder: Path) -> str:
    """Return the page of the last run that has left a trace in a config's folder.

    Raises ConfigError: There is none.
    Raises IntegrityError: Its files are damaged.
    """
    traces = sorted((folder / "runs").glob(f"*{SUFFIX}"))
    if not traces:
        raise ConfigError(f"{folder}: no run has left a trace", "build something first")
    record = traces[-1].with_name(traces[-1].name.removesuffix(SUFFIX) + ".json")
    try:
        events = json.loads(traces[-1].read_text())["traceEvents"]
        run = json.loads(record.read_text())
        names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        spans = [event for event in events if event["ph"] == "X"]
        whole = max([1e6 * run["seconds"], *(event["ts"] + event["dur"] for event in spans)])
        lanes = {
            name: [
                {
                    "what": event["name"],
                    "took": duration(event["dur"] / 1e6),
                    "left": 100 * max(0, event["ts"]) / whole,
                    "width": max(_LEAST_PERCENT, 100 * event["dur"] / whole),
                }
                for event in spans
                if event["tid"] == number and event["dur"] / whole * 100 >= _LEAST_PERCENT / 10
            ]
            for number, name in names.items()
        }
        environment = jinja2.Environment(
            autoescape=True,
            loader=jinja2.FileSystemLoader(Path(__file__).parent),
            undefined=jinja2.StrictUndefined,
        )
        environment.filters |= {"duration": duration, "size": size}
        return environment.get_template("page.html.j2").render(run=run, lanes=lanes, whole=whole / 1e6)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, jinja2.TemplateError) as error:
        raise IntegrityError(
            f"{record}: {type(error).__name__}: {error}", "the next run leaves another one"
        ) from error
