#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/dashboards: every metric that a panel or an alert asks for is one that the programs serve, every expression is
PromQL (where promtool is installed), no panel lies on another, and HAMi's board can be taken over (its uid, its rows)."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARD = ROOT / "deploy/dashboards/hami-vgpu-dashboard.json"
RULES = ROOT / "deploy/dashboards/rules.yaml"
METRIC = re.compile(r"\bhami_[a-z0-9_]+")
ROWS = ["Cluster overview", "Physical GPUs (host)", "Scheduler / allocation", "vGPU / container"]


def served():
    """Names of metrics in the programs' sources and in the golden list of the monitor's page."""
    names = set(METRIC.findall((ROOT / "test/golden/monitor/families.txt").read_text()))
    for folder in ("src/scheduler", "src/plugin", "src/monitor", "src/base"):
        for path in (ROOT / folder).glob("*.cc"):
            if not path.stem.endswith(("_test", "_fuzz")):
                names |= set(re.findall(r'"(hami_[a-z0-9_]+)"', path.read_text()))
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "count", "sum")}


def expressions(board):
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']!r}", target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", re.match(r"label_values\((.*), \w+\)", variable["definition"])[1]


def alerts():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]


def overlapping(panels):
    cells = {}
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            yield f"panel {panel['title']!r} reaches over the edge"
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = cells.setdefault((x, y), panel["title"])
                if other is not panel["title"]:
                    yield f"panel {panel['title']!r} lies on {other!r}"
                    return


def unreadable(found):
    """What promtool says of the expressions, as rules of their own."""
    if not shutil.which("promtool"):
        return
    rules = [{"record": f"x{i}", "expr": re.sub(r"\$\w+", ".*", text)} for i, (_, text) in enumerate(found)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": [{"name": "x", "rules": rules}]}, file)
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        yield done.stdout + done.stderr


def mistakes():
    board = json.loads(BOARD.read_text())
    found = [*expressions(board), *alerts()]
    names = served()
    for where, text in found:
        for name in METRIC.findall(text):
            if name not in names:
                yield f"{where} asks for {name}, which no program serves"
    if (board["uid"], [p["title"] for p in board["panels"] if p["type"] == "row"]) != ("hami-vgpu-metrics", ROWS):
        yield "the board is not HAMi's any more: its uid or rows differ"
    if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
        yield "two panels have one id"
    yield from overlapping(board["panels"])
    yield from unreadable(found)


def main():
    wrong = list(mistakes())
    for line in wrong:
        print(f"deploy/dashboards: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
