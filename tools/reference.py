#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference from what the programs and the sources say of themselves.

    reference.py [--bin DIR] [ROOT]           writes the pages (default: build/bin)
    reference.py --check [--bin DIR] [ROOT]   says what is missing, or would be written otherwise; exit status 1 then

Flags are those of `PROGRAM --help=json`; variables, annotations, events and keys of configuration files those of
`hami --help=reference`; metrics those of the sources, where each has its type and its text. What the sources read or
write and no table names, a row that no source knows any more, and a row without a text are mistakes.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys

DAEMONS = ("hami-scheduler", "hami-device-plugin", "hami-monitor")
NO_SOURCES = re.compile(r"_test\.cc$|_fuzz\.cc$|_bench\.cc$|/testing/|/abi/|graph_dot\.cc$|reference_tables\.cc$")
HEAD = "<!-- Written by tools/reference.py from the programs; a change here is lost. -->\n"
# What reads the environment, by the names that the sources have for it.
READ = re.compile(r'\b(?:getenv|get|[eE]nvironment|Variable|ProcessEnvironment|SaysYes|ReadPerDevice|require)\(\s*"([A-Za-z_]\w+)"')
NAMED = re.compile(r'"((?:HAMI|SIMGPU|CUDA|NVIDIA|GPU|LIBCUDA|ACTIVE)_[A-Z_]*[A-Z])"')
NO_VARIABLES = {"CUDA_SUCCESS", "CUDA_ERROR", "NVIDIA_GPU"}
EVENT = re.compile(r'(?:\{(?:true|false),|kWarning,|kNormal,|Warn\([^"\n]*?,|MarkFailed\([^"\n]*?,|return \{(?:true|false),)\s*"([A-Z][a-z]+(?:[A-Z][a-z]+)*)"')
TEXT = r'((?:"(?:[^"\\]|\\.)*"\s*)+)'
METRIC = re.compile(
    r'"((?:hami_|Host|Device|vGPU|GPU|node[A-Z]|Quota|Mig)\w+)"\s*,\s*(?:(?:base::)?(?:Exposition::)?(?:Type::)?k(Gauge|Counter|Histogram)\s*,\s*)?' + TEXT
)
METRIC_NAME = re.compile(r'"(hami_[a-z0-9_]+)"')
KEY = re.compile(r'"([a-z][A-Za-z]+)"')


def sources(root, *folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cc", ".h", ".inc") and not NO_SOURCES.search(str(path)):
                yield path, path.read_text()


def joined(literals):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def run(program, *words):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        sys.exit(f"reference.py: {program} {' '.join(words)}: status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class Code:
    """What the code says of itself."""

    def __init__(self, root, bin_folder):
        self.root = root
        hami = str(bin_folder / "hami")
        self.tables = run(hami, "--help=reference")
        self.commands = [run(hami, *command["name"].split(), "--help=json") for command in self.tables["commands"]]
        self.daemons = [run(str(bin_folder / name), "--help=json") for name in DAEMONS]
        self.variables = {row["name"]: row for row in self.tables["variables"]}
        self.add_variables_of_flags()
        self.metrics = self.read_metrics()

    def add_variables_of_flags(self):
        for page in self.daemons:
            for flag in page["flags"]:
                found = re.search(r"\[([A-Z][A-Za-z_, ]+)\]$", flag["help"])
                for name in re.split(r", *", found[1]) if found else ():
                    row = {"name": name, "reader": page["program"], "text": f"as --{flag['name']}, which wins over it"}
                    self.variables.setdefault(name, row)

    def read_metrics(self):
        found = {}
        for folder, program in (("src/scheduler", DAEMONS[0]), ("src/plugin", DAEMONS[1]), ("src/monitor", DAEMONS[2])):
            for path, text in sources(self.root, folder):
                if "options" in path.name:
                    continue
                for name, kind, help_text in METRIC.findall(text):
                    kind = (kind or ("Counter" if name.endswith("_total") else "Gauge")).lower()
                    row = found.setdefault((program, name), {"name": name, "kind": kind, "text": joined(help_text)})
                    row["program"] = program
        return sorted(found.values(), key=lambda row: (row["program"], row["name"]))


def unknown_variables(code):
    known = {re.sub(r"_?<i>$", "", name) for name in code.variables}
    read = {}
    for path, text in sources(code.root, "src", "simgpu"):
        for name in READ.findall(text) + NAMED.findall(text):
            if name.upper() == name or name == "NodeName":
                read.setdefault(name, path.relative_to(code.root))
    for name, path in sorted(read.items()):
        if name not in known and name not in NO_VARIABLES and not name.startswith("CUDA_ERROR"):
            yield f"{path}: reads {name}, which the table of variables (src/cli/reference_tables.cc) lacks"
    everything = "\n".join(text for _, text in sources(code.root, "src", "simgpu"))
    for name in sorted(known):
        if f'"{name}' not in everything:
            yield f"src/cli/reference_tables.cc: nothing reads {name} any more"


def unknown_events(code):
    known = {row["reason"] for row in code.tables["events"]}
    written = {}
    for path, text in sources(code.root, "src/scheduler", "src/sched", "src/plugin", "src/monitor", "src/mps"):
        for reason in EVENT.findall(text):
            written.setdefault(reason, path.relative_to(code.root))
    for reason in sorted(set(written) - known):
        yield f"{written[reason]}: writes the event {reason}, which src/cli/reference_tables.cc lacks"
    for reason in sorted(known - set(written)):
        yield f"src/cli/reference_tables.cc: nothing writes the event {reason} any more"


def unknown_keys(code):
    known = {row["key"] for row in code.tables["keys"]}
    values = {"default", "none", "force", "disable", "mig", "mps", "nvml", "auto", "std", "true", "false"}
    read = {}
    for path, text in sources(code.root, "src/device", "src/plugin"):
        if "device/config_reader.h" in text and path.name != "config_reader.cc":
            body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
            for key in KEY.findall(body):
                read.setdefault(key, path.relative_to(code.root))
    for key in sorted(set(read) - known - values):
        yield f"{read[key]}: reads the key {key}, which src/cli/reference_tables.cc lacks"
    for key in sorted(known - set(read)):
        yield f"src/cli/reference_tables.cc: nothing reads the key {key} any more"


def unknown_metrics(code):
    known = {row["name"] for row in code.metrics}
    for path, text in sources(code.root, "src/scheduler", "src/plugin", "src/monitor", "src/mps"):
        for name in METRIC_NAME.findall(text):
            if name not in known and not name.endswith("_"):
                yield f"{path.relative_to(code.root)}: {name} has no text beside it that could be taken for its help"


def without_text(code):
    for page in code.commands + code.daemons:
        for flag in page["flags"]:
            if not flag["help"] and "dead" not in flag:
                yield f"{page['program']} --{flag['name']} has no text"
            elif flag["help"].startswith("["):
                yield f"{page['program']} --{flag['name']} has no text beside its variable"
    rows = [("variable", row["name"], row["text"]) for row in code.variables.values()]
    rows += [("annotation", row["key"], row["text"]) for row in code.tables["annotations"]]
    rows += [("event", row["reason"], row["text"]) for row in code.tables["events"]]
    rows += [("key", row["key"], row["text"]) for row in code.tables["keys"]]
    rows += [("metric", row["name"], row["text"]) for row in code.metrics]
    for kind, name, text in rows:
        if not text.strip():
            yield f"{kind} {name} has no text"


def bad_manuals(code, bin_folder):
    """What mandoc has to say of the manual pages, where it is installed."""
    if shutil.which("mandoc") is None:
        return
    for page in code.commands + code.daemons:
        words = page["program"].split()
        manual = subprocess.run([str(bin_folder / words[0]), *words[1:], "--help=man"], capture_output=True, text=True, timeout=20)
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=manual.stdout, capture_output=True, text=True, timeout=20)
        for line in (lint.stdout + lint.stderr).splitlines():
            yield f"{page['program']} --help=man: {line}"


def cell(text):
    return str(text).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


def code_cell(text):
    return f"`{str(text).replace('|', chr(92) + '|')}`" if text else ""


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def flags_of(page, level):
    out = []
    groups = list(dict.fromkeys(flag["group"] for flag in page["flags"] if "dead" not in flag))
    for group in groups:
        rows = []
        for flag in page["flags"]:
            if "dead" in flag or flag["group"] != group:
                continue
            name = f"--{flag['name']}" + (f", -{flag['letter']}" if flag["letter"] else "")
            rows.append((code_cell(name), code_cell(flag["type"]), code_cell(flag["default"]), cell(flag["help"])))
        if len(groups) > 1:
            out.append(f"{level} {group}\n")
        out.append(table(("flag", "value", "default", "meaning"), rows))
    dead = [(code_cell("--" + flag["name"]), cell(flag["dead"]) or "no word is said about it") for flag in page["flags"] if "dead" in flag]
    if dead:
        out += [f"{level} Accepted, without effect\n", table(("flag", "why"), sorted(dead))]
    return "\n".join(out)


def fenced(text):
    return "```\n" + text.strip("\n") + "\n```\n" if text.strip() else ""


def annotations(rows):
    """By whose word it is, as docs/operate/security.md has it."""
    kinds = {
        "Pods: the tenant's": lambda row: row["on"] == "pod" and row["author"] == "tenant",
        "Pods: results": lambda row: row["on"] == "pod" and row["author"] != "tenant",
        "Nodes": lambda row: row["on"] == "node",
        "The lease": lambda row: row["on"] == "lease",
    }
    out = [HEAD, "# Annotations and labels\n", "What becomes of a key that another writes is said in [security](../operate/security.md).\n"]
    for title, belongs in kinds.items():
        own = [(code_cell(row["key"]), row["author"], cell(row["text"])) for row in rows if belongs(row)]
        out += [f"## {title}\n", table(("key", "written by", "meaning"), own)]
    return "\n".join(out)


def pages(code):
    for page in code.daemons:
        yield page["program"] + ".md", "\n".join(
            [HEAD, f"# {page['program']}: flags\n", page["summary"][0].upper() + page["summary"][1:] + ".\n", fenced(page["before"]),
             flags_of(page, "##"), fenced(page["after"])]
        )
    out = [HEAD, "# hami: commands and flags\n", table(("command", "what it does"), [
        (f"[`{page['program']}`](#{page['program'].replace(' ', '-')})", cell(page["summary"])) for page in code.commands])]
    for page in code.commands:
        out += [f"## {page['program']}\n", fenced(page["before"]), flags_of(page, "###"), fenced(page["after"])]
    yield "hami.md", "\n".join(part for part in out if part)
    yield "variables.md", "\n".join([HEAD, "# Environment variables\n", table(("variable", "read by", "meaning"), [
        (code_cell(row["name"]), cell(row["reader"]), cell(row["text"])) for _, row in sorted(code.variables.items())])])
    yield "annotations.md", annotations(code.tables["annotations"])
    out = [HEAD, "# Metrics\n"]
    for program in DAEMONS:
        rows = [(code_cell(row["name"]), row["kind"], cell(row["text"])) for row in code.metrics if row["program"] == program]
        out += [f"## {program}\n", table(("metric", "type", "meaning"), rows)]
    yield "metrics.md", "\n".join(out)
    yield "events.md", "\n".join([HEAD, "# Events\n", table(("reason", "type", "on", "written by", "meaning"), [
        (code_cell(row["reason"]), row["type"], row["on"], row["author"], cell(row["text"])) for row in code.tables["events"]])])
    out = [HEAD, "# Keys of configuration files\n"]
    for file in dict.fromkeys(row["file"] for row in code.tables["keys"]):
        rows = [(code_cell(row["section"]), code_cell(row["key"]), cell(row["text"])) for row in code.tables["keys"] if row["file"] == file]
        out += [f"## {file}\n", table(("section", "key", "meaning"), rows)]
    yield "config.md", "\n".join(out)


def check(code, bin_folder):
    mistakes = [*bad_manuals(code, bin_folder), *without_text(code), *unknown_variables(code), *unknown_events(code), *unknown_keys(code), *unknown_metrics(code)]
    folder = code.root / "docs/reference"
    wanted = dict(pages(code))
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            mistakes.append(f"docs/reference/{name} is not what the programs say; run tools/reference.py")
    for path in sorted(folder.glob("*.md")):
        if path.name not in wanted:
            mistakes.append(f"docs/reference/{path.name} is none of the pages that tools/reference.py writes")
    return mistakes


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parents[1])
    given = parser.parse_args(arguments)
    root = given.root.resolve()
    bin_folder = given.bin or root / "build/bin"
    code = Code(root, bin_folder)
    if not given.check:
        folder = root / "docs/reference"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages(code):
            (folder / name).write_text(text)
        return 0
    mistakes = check(code, bin_folder)
    for mistake in mistakes:
        print(mistake)
    flags = sum(len(page["flags"]) for page in code.commands + code.daemons)
    print(f"{flags} flags, {len(code.variables)} variables, {len(code.metrics)} metrics, {len(mistakes)} mistakes")
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
