# SPDX-License-Identifier: Apache-2.0
"""Reads the declarations in src/abi, which are written in a small, regular part of C++.

Knows: enum lists, structs and unions (nested, anonymous, several declarators a line), `using` aliases, object-like macros, and
prototypes made by the HAMI_CU* and HAMI_NVML* macros. Anything else inside a struct is an error, so that nothing is skipped
silently.
"""

import re

CUDA_TYPES = ["cuda_types.h", "cuda_enums.h", "cuda_codes.h", "cuda_structs.h", "cuda_graph_structs.h"]
CUDA_FUNCTIONS = ["cuda_functions_core.h", "cuda_functions_memory.h", "cuda_functions_stream.h", "cuda_functions_13.h"]
NVML_TYPES = ["nvml_types.h", "nvml_fields.h", "nvml_structs.h"]
NVML_FUNCTIONS = ["nvml_functions.h"]


def strip_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def read(abi, names):
    return strip_comments("\n".join((abi / name).read_text() for name in names))


def closing(text, start):
    """Position of the brace that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("unbalanced braces near: " + text[start : start + 60])


def enumerators(text):
    """[(enum, enumerator)] in order."""
    out = []
    for m in re.finditer(r"\benum (\w+) \{([^}]*)\};", text):
        for item in m[2].split(","):
            name = item.split("=")[0].strip()
            if name:
                out.append((m[1], name))
    return out


def macros(text):
    """{name: body} of the object-like macros that have a body."""
    text = text.replace("\\\n", " ")
    return {m[1]: m[2].strip() for m in re.finditer(r"^#define (\w+)[ \t]+(\S[^\n]*)$", text, re.M)}


def aliases(text):
    return [m[1] for m in re.finditer(r"^using (\w+) =", text, re.M)]


def split_members(body):
    """The statements of a struct body; a nested body stays inside its statement."""
    out, start, i = [], 0, 0
    while i < len(body):
        if body[i] == "{":
            i = closing(body, i)
        elif body[i] == ";":
            out.append(" ".join(body[start:i].split()))
            start = i + 1
        i += 1
    if body[start:].strip():
        raise ValueError("no semicolon after: " + body[start:].strip())
    return [s for s in out if s]


def fields(body, types=None):
    """Dotted names of every field that can be named, those of nested and anonymous aggregates included."""
    types = dict(types or {})
    out = []
    for member in split_members(body):
        m = re.match(r"(?:struct|union)(?: (\w+))? \{", member)
        if m:
            end = closing(member, m.end() - 1)
            inner, name = member[m.end() : end], member[end + 1 :].strip()
            if m[1]:
                types[m[1]] = inner
            if name:
                out += [name] + [f"{name}.{f}" for f in fields(inner, types)]
            elif not m[1]:
                out += fields(inner, types)
            continue
        m = re.match(r"((?:const |unsigned |struct |long )*\w+(?:\*+| const\*)*) (.+)$", member)
        if not m:
            raise ValueError("cannot read the member: " + member)
        for declarator in m[2].split(","):
            name = re.match(r"\s*(\w+)\s*(\[|$)", declarator)
            if not name:
                raise ValueError("cannot read the declarator: " + declarator)
            out.append(name[1])
            if m[1] in types and name[2] != "[":
                out += [f"{name[1]}.{f}" for f in fields(types[m[1]], types)]
    return out


def structs(text):
    """{name: [field]} of the structs and unions at file level."""
    out = {}
    for m in re.finditer(r"^(?:struct|union) (?:alignas\(\d+\) )?(\w+) \{", text, re.M):
        out[m[1]] = fields(text[m.end() : closing(text, m.end() - 1)])
    return out


def functions(text):
    """Names of the prototypes, twins included."""
    out = []
    for m in re.finditer(r"^(?:HAMI_CU(_PTSZ|_PTDS|_ADD)?|(HAMI_NVML(?:_DEVICE)?))\((\w+),|^const char\* (\w+)\(", text, re.M):
        name = m[4] or ("nvmlDevice" + m[3] if m[2] == "HAMI_NVML_DEVICE" else m[3])
        out.append(name)
        if m[1] in ("_PTSZ", "_PTDS"):
            out.append(name + m[1].lower())
    return out


def api_rows(path):
    """[(kind, [columns])] of a *_api.inc."""
    rows = re.findall(r"^HAMI_(?:CUDA|NVML)_(HOOK|PASS|ALIAS)\(([^)]*)\)", path.read_text(), re.M)
    return [(kind, [c.strip() for c in columns.split(",")]) for kind, columns in rows]


def listed(path):
    return {columns[0] for kind, columns in api_rows(path) if kind != "ALIAS"}
