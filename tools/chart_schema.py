#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does every object of a rendering have the form that a Kubernetes version knows? Unknown fields and wrong kinds of values
are errors, named by their place.

    chart_schema.py VERSION FILE...       e.g. chart_schema.py 1.26 rendered.yaml

The form is read from k8s.io/client-go of that version, fetched with Go. Exit status: 0 yes, 1 no, 3 it cannot be fetched.
Kinds that Kubernetes does not have itself (cert-manager's, Prometheus') are only counted.
"""
import json
import pathlib
import re
import subprocess
import sys

import yaml

# The last release of client-go for each version of Kubernetes that the chart is rendered for.
CLIENTS = {"1.26": "v0.26.15", "1.29": "v0.29.15", "1.32": "v0.32.13", "1.35": "v0.35.4"}
ANY = "__untyped_atomic_"
FOREIGN = ("cert-manager.io", "monitoring.coreos.com")


class Unavailable(Exception):
    pass


def read_types(version):
    """{name of a type: its description}"""
    wanted = f"k8s.io/client-go@{CLIENTS[version]}"
    try:
        done = subprocess.run(["go", "mod", "download", "-json", wanted], capture_output=True, text=True, check=True, cwd="/")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"{wanted} cannot be fetched: {error}") from None
    folder = pathlib.Path(json.loads(done.stdout)["Dir"])
    text = (folder / "applyconfigurations/internal/internal.go").read_text()
    schema = re.search(r"typed\.YAMLObject\(`(.*?)`\)", text, re.DOTALL)[1]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {one["name"]: one for one in yaml.load(schema, loader)["types"]}


def type_of(types, thing):
    """The name of an object's type, or None for a kind that Kubernetes does not have itself."""
    group, _, version = thing["apiVersion"].rpartition("/")
    if group in FOREIGN:
        return None
    short = (group or "core").split(".")[0]
    name = f"io.k8s.api.{short}.{version}.{thing['kind']}"
    if name not in types:
        raise KeyError(f"this version has no {thing['kind']} in {thing['apiVersion']}")
    return name


SCALARS = {"string": str, "boolean": bool, "numeric": (int, float)}


def mistakes(types, form, value, place):
    """Lines that say what of `value` is not as `form` wants it."""
    while "namedType" in form:
        name = form["namedType"]
        if name.startswith(ANY) or name.endswith((".Quantity", ".IntOrString", ".Time", ".MicroTime", ".RawExtension")):
            return
        form = types[name]
    if value is None:
        return
    if "map" in form:
        yield from in_map(types, form["map"], value, place)
    elif "list" in form:
        if not isinstance(value, list):
            yield f"{place}: must be a list"
            return
        for number, item in enumerate(value):
            yield from mistakes(types, form["list"]["elementType"], item, f"{place}[{number}]")
    elif "scalar" in form:
        wanted = SCALARS.get(form["scalar"], object)
        if not isinstance(value, wanted) or (form["scalar"] == "numeric" and isinstance(value, bool)):
            yield f"{place}: must be {form['scalar']}, is {value!r}"


def in_map(types, form, value, place):
    if not isinstance(value, dict):
        yield f"{place}: must be an object"
        return
    fields = {field["name"]: field["type"] for field in form.get("fields", ())}
    for key, item in value.items():
        kind = fields.get(key) or form.get("elementType")
        if kind is None:
            yield f"{place}.{key}: unknown"
        else:
            yield from mistakes(types, kind, item, f"{place}.{key}")


def check(types, documents):
    """(how many objects were looked at, how many are of others, mistakes)"""
    looked, foreign, wrong = 0, 0, []
    for thing in documents:
        if thing is None:
            continue
        meta = thing.get("metadata")
        place = f"{thing.get('kind')}/{meta.get('name') if isinstance(meta, dict) else meta}"
        try:
            name = type_of(types, thing)
        except KeyError as error:
            wrong.append(f"{place}: {error.args[0]}")
            continue
        if name is None:
            foreign += 1
            continue
        looked += 1
        wrong += mistakes(types, {"namedType": name}, thing, place)
    return looked, foreign, wrong


def main(argv):
    if len(argv) < 2 or argv[0] not in CLIENTS:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        types = read_types(argv[0])
    except Unavailable as error:
        print(error, file=sys.stderr)
        return 3
    status = 0
    for path in argv[1:]:
        looked, foreign, wrong = check(types, yaml.safe_load_all(pathlib.Path(path).read_text()))
        for line in wrong:
            print(f"{path}: {line}")
        print(f"{path}: {looked} objects of Kubernetes {argv[0]}, {foreign} of others, {len(wrong)} mistakes")
        status |= bool(wrong) or looked == 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
