#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that src/abi declares what NVIDIA's headers declare.

    abi_check.py --names                          every prototype of ours is a row of the list (needs no header)
    abi_check.py --headers DIR [--cxx g++] ...    DIR holds cuda.h, cudaTypedefs.h and/or nvml.h

With headers it has the compiler compare, and fails on: a wrong value of an enumerator or macro; a wrong size, offset, width,
signedness or kind of a field; a different type of a scalar, handle or callback; a prototype that differs in any way; a wrong
`since` in cuda_api.inc; a symbol that the header has and the list has not; a name of ours that the newest header does not know.
An older header (12.x) may lack names, and the tail of a struct that grew; what it has must agree.

Exit status: 0 equal, 1 different, 77 no headers to compare with.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import abi_parse as parse

SKIP = 77

PRELUDE = r"""
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// What the ABI sees of a type, without its name.
template <class T> constexpr int KindOf() {
  using U = std::remove_cv_t<std::remove_all_extents_t<T>>;
  if constexpr (std::is_enum_v<U>) return std::is_signed_v<std::underlying_type_t<U>> ? 1 : 2;
  else if constexpr (std::is_pointer_v<U>) return 3;
  else if constexpr (std::is_floating_point_v<U>) return 4;
  else if constexpr (std::is_same_v<U, char>) return 5;
  else if constexpr (std::is_integral_v<U>) return std::is_signed_v<U> ? 1 : 2;
  else if constexpr (std::is_void_v<U>) return 6;
  else return 7;
}
template <class A, class B> constexpr bool SameKind() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) return std::is_void_v<A> && std::is_void_v<B>;
  else return sizeof(A) == sizeof(B) && KindOf<A>() == KindOf<B>();
}
// An enumeration that got its first negative enumerator in a newer header changed its sign, which no caller notices.
template <class A, class B> constexpr bool SameSize() {
  return SameKind<A, B>() || (std::is_enum_v<A> && std::is_enum_v<B> && sizeof(A) == sizeof(B));
}
template <class A, class B> struct SameCall : std::bool_constant<SameKind<A, B>()> {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<[] {
        if constexpr (sizeof...(A) == sizeof...(B)) return SameKind<R, S>() && (SameKind<A, B>() && ...);
        else return false;
      }()> {};
"""


def compile_source(cxx, include, source, where):
    """Compiles `source` for its errors only; returns the compiler's first words about it, or nothing."""
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / (where + ".cc")
        path.write_text(source)
        command = [*cxx, "-std=c++20", "-w", "-fsyntax-only", *include, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    lines = [line for line in done.stderr.splitlines() if "error:" in line]
    return [re.sub(r"^.*?error: ", where + ": ", line) for line in lines[:20]] or [where + ": " + done.stderr[:400]]


class Official:
    """An official header: its names, its macros, its version."""

    def __init__(self, cxx, directory, header, define, version_macro):
        self.header, self.define = header, define
        source = f"#define {define}\n#include <{header}>\n"
        command = [*cxx, "-E", "-dD", "-x", "c++", "-isystem", str(directory), "-"]
        self.text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
        self.names = set(re.findall(r"[A-Za-z_]\w*", self.text))
        self.macros = parse.macros(self.text)
        self.version = int(self.macros[version_macro])

    def functions(self, prefix):
        return set(re.findall(rf"\b({prefix}[A-Z]\w*)\s*\(", re.sub(r"^#.*$", "", self.text, flags=re.M)))


def macro_checks(official, ours, strict, errors):
    """Source before and after our header that compares macros; those with a pointer in them are compared as text."""
    before, after = [], []
    squeeze = lambda body: re.sub(r"[\s()]", "", body)
    for name, body in ours.items():
        if name in ("CUDAAPI", "CUDA_CB", "CUDA_VERSION", "NVML_API_VERSION"):
            continue
        if name not in official.macros:
            if strict:
                errors.append(f"macro {name}: not in {official.header}")
            continue
        if "*)" in body or "CUstream)" in body or body.startswith('"'):
            same = lambda text: re.sub(r"0x0*(?=\d)", "", squeeze(text))
            if same(body) != same(official.macros[name]):
                errors.append(f"macro {name}: {body}, in {official.header} {official.macros[name]}")
            continue
        if re.match(r"[a-z]\w*_t$", body):
            continue
        if "NVML_STRUCT_VERSION" in body:  # sized by a struct, which is another type there
            before.append(f"constexpr auto official_{name} = static_cast<unsigned long long>({name});\n")
        else:
            before.append(f"constexpr auto official_{name} = static_cast<long long>({name});\n#undef {name}\n")
        same = "==" if strict or not BOUND.search(name) else ">="
        after.append(f'static_assert(static_cast<decltype(official_{name})>({name}) {same} official_{name}, "macro {name}");\n')
    return before, after


# Names that bound what a header knows: an older header's are smaller.
BOUND = re.compile(r"_(MAX|COUNT|NUM_OPTIONS|MAX_LINKS)$")
# Structs that carry their version word: an older header knows an older word.
OLDER_ALIASES = {"nvmlGpuFabricInfoV_t"}


def struct_checks(name, fields, strict):
    out = []
    if strict:
        out.append(f'static_assert(sizeof(ours::{name}) == sizeof(::{name}), "size of {name}");')
        out.append(f'static_assert(alignof(ours::{name}) == alignof(::{name}), "alignment of {name}");')
    else:
        out.append(f'static_assert(sizeof(ours::{name}) >= sizeof(::{name}), "size of {name}");')
    for field in fields:
        if not strict and re.search(r"(^|\.)_?(reserved|oversize|padding)", field):
            continue  # what a newer header took its new fields from
        # A template, so that a field which only the newer header has can be passed over with an older one.
        label = f"{name}.{field}"
        out.append(
            f"template <class O, class T> constexpr bool Compare_{len(out)}_{name}() {{\n"
            f"  if constexpr (requires(T& t) {{ t.{field}; }}) {{\n"
            f"    static_assert(__builtin_offsetof(O, {field}) == __builtin_offsetof(T, {field}), \"offset of {label}\");\n"
            f"    static_assert({'SameKind' if strict else 'SameSize'}<decltype(std::declval<O&>().{field}), "
            f"decltype(std::declval<T&>().{field})>() ||\n"
            f"                  KindOf<decltype(std::declval<O&>().{field})>() == 7, \"type of {label}\");\n"
            f"    return true;\n  }}\n  return {'false' if strict else 'true'};\n}}\n"
            f'static_assert(Compare_{len(out)}_{name}<ours::{name}, ::{name}>(), "{label}: not in the official header");'
        )
    return out


def types_source(abi, files, official, strict, errors):
    """A translation unit in which both headers' types meet: NVIDIA's as they are, ours in a namespace."""
    text = parse.read(abi, files)
    before, after = macro_checks(official, parse.macros(text), strict, errors)
    checks = []
    known = official.names

    def missing(what, name):
        if strict:
            errors.append(f"{what} {name}: not in {official.header}")

    for enum, name in parse.enumerators(text):
        if name in known:
            same = "==" if strict or not BOUND.search(name) else ">="
            checks.append(f'static_assert(static_cast<long long>(ours::{name}) {same} static_cast<long long>(::{name}), "{name}");')
        else:
            missing("enumerator", name)
    for enum in dict(parse.enumerators(text)):
        if enum in known:
            same = "SameKind" if strict else "SameSize"
            checks.append(f'static_assert({same}<ours::{enum}, ::{enum}>(), "type of enum {enum}");')
        else:
            missing("enum", enum)
    for name in parse.aliases(text):
        if name not in known:
            missing("type", name)
        elif strict or name not in OLDER_ALIASES:
            checks.append(f'static_assert(SameCall<ours::{name}, ::{name}>::value || '
                          f'(KindOf<ours::{name}>() == 7 && sizeof(ours::{name}) >= sizeof(::{name})), "type {name}");')
    for name, fields in parse.structs(text).items():
        if name in known:
            checks += struct_checks(name, fields, strict)
        else:
            missing("struct", name)
    includes = "".join(f'#include "abi/{f}"\n' for f in files)
    undefine = "".join(f"#undef {m}\n" for m in parse.macros(text) if m in official.macros)
    undefine += "#undef NVML_STRUCT_VERSION\n#undef NVML_CUDA_DRIVER_VERSION_MAJOR\n#undef NVML_CUDA_DRIVER_VERSION_MINOR\n"
    macros_after = f"namespace ours {{\n{''.join(after)}}}\n"
    return (
        f"#define {official.define}\n{PRELUDE}#include <{official.header}>\n{''.join(before)}{undefine}"
        f"namespace ours {{\n{includes}}}\n{macros_after}" + "\n".join(checks) + "\n"
    )


def since_source(abi, official, typedefs, errors):
    """Checks of the `since` column: the typedef of (name, version, flavour) is the type of the row's symbol, both ways."""
    suffix = {"PLAIN": "", "PTDS": "_ptds", "PTSZ": "_ptsz"}
    rows = {}
    for kind, (symbol, asked, since, flavour) in parse.api_rows(abi / "cuda_api.inc"):
        if kind == "ALIAS":
            continue  # known to cuGetProcAddress, and to cuda.h as a macro, but not to cudaTypedefs.h
        if (asked, since, flavour) in rows:
            errors.append(f"cuda_api.inc: two rows for {asked} {since} {flavour}")
        rows[asked, since, flavour] = symbol
    out = ['#define HAMI_OFFICIAL_CUDA_H\n#include "abi/cuda_abi.h"\n#include <cudaTypedefs.h>\n#include <type_traits>']
    for m in re.finditer(r"\bPFN_(cu[A-Z]\w*?)_v(\d{4,5})(_ptds|_ptsz)?\)\s*\(", typedefs):
        name, since, flavour = m[1], m[2], {None: "PLAIN", "_ptds": "PTDS", "_ptsz": "PTSZ"}[m[3]]
        symbol = rows.get((name, since, flavour))
        if symbol is None:
            errors.append(f"cuda_api.inc: no row for {name} {since} {flavour}, which cudaTypedefs.h has")
        else:
            out.append(f'static_assert(std::is_same_v<decltype(&::{symbol}), PFN_{name}_v{since}{suffix[flavour]}>, '
                       f'"since of {symbol}");')
    known = set(re.findall(r"\bPFN_cu\w+", typedefs))
    for (asked, since, flavour), symbol in rows.items():
        # A header drops typedefs of old versions, but never all of a function's.
        same = [k for k in known if re.fullmatch(rf"PFN_{asked}_v\d{{4,5}}{suffix[flavour]}", k)]
        newest = max((int(re.search(r"_v(\d+)", k)[1]) for k in same), default=0)
        wanted = f"PFN_{asked}_v{since}{suffix[flavour]}"
        if same and wanted not in known and newest < int(since) <= official.version:
            errors.append(f"cuda_api.inc: {symbol}: cudaTypedefs.h has no {wanted}")
    return "\n".join(out) + "\n"


def check_names(abi):
    errors = []
    for api, files in (("cuda_api.inc", parse.CUDA_FUNCTIONS), ("nvml_api.inc", parse.NVML_FUNCTIONS)):
        names = parse.functions(parse.read(abi, files))
        rows = parse.listed(abi / api)
        errors += [f"{name} is declared, but is no row of {api}" for name in names if name not in rows]
        errors += [f"{name} is declared twice" for name in sorted({n for n in names if names.count(n) > 1})]
        if not names:
            errors.append(f"no prototypes found for {api}")
        print(f"{api}: {len(rows)} symbols, {len(set(names))} declared")
    return errors


PARTS = ("types", "functions", "since")


def check_cuda(abi, cxx, directory, parts=PARTS):
    errors = []
    official = Official(cxx, directory, "cuda.h", "__CUDA_API_VERSION_INTERNAL", "CUDA_VERSION")
    ours = int(parse.macros(parse.read(abi, parse.CUDA_TYPES))["CUDA_VERSION"])
    strict = official.version >= ours
    include = ["-I", str(abi.parent), "-isystem", str(directory)]
    if "types" in parts:
        source = types_source(abi, parse.CUDA_TYPES, official, strict, errors)
        errors += compile_source(cxx, include, source, "cuda types")
    layout = '#define HAMI_OFFICIAL_CUDA_H\n#include "abi/cuda_abi.h"\n#include <cstddef>\n#include "abi/cuda_layout.inc"\n'
    if "functions" in parts:
        errors += compile_source(cxx, include, layout, "cuda_functions, cuda_layout.inc")
    typedefs = directory / "cudaTypedefs.h"
    if typedefs.exists() and "since" in parts:
        errors += compile_source(cxx, include, since_source(abi, official, typedefs.read_text(), errors), "since")
    elif not typedefs.exists():
        print("  no cudaTypedefs.h: the since column is not compared")
    for name in sorted(official.functions("cu") - parse.listed(abi / "cuda_api.inc")):
        errors.append(f"{name} is in cuda.h, but is no row of cuda_api.inc")
    print(f"CUDA {official.version} in {directory}: " + ("compared" if strict else "compared, as an older header"))
    return errors


def check_nvml(abi, cxx, directory, parts=PARTS):
    errors = []
    official = Official(cxx, directory, "nvml.h", "NVML_NO_UNVERSIONED_FUNC_DEFS", "NVML_API_VERSION")
    ours = int(parse.macros(parse.read(abi, parse.NVML_TYPES))["NVML_API_VERSION"])
    strict = official.version >= ours
    include = ["-I", str(abi.parent), "-isystem", str(directory)]
    if "types" in parts:
        source = types_source(abi, parse.NVML_TYPES, official, strict, errors)
        errors += compile_source(cxx, include, source, "nvml types")
    layout = '#define HAMI_OFFICIAL_NVML_H\n#include "abi/nvml_abi.h"\n#include <cstddef>\n#include "abi/nvml_layout.inc"\n'
    if "functions" in parts:
        errors += compile_source(cxx, include, layout, "nvml_functions, nvml_layout.inc")
    for name in sorted(official.functions("nvml") - parse.listed(abi / "nvml_api.inc")):
        errors.append(f"{name} is in nvml.h, but is no row of nvml_api.inc")
    print(f"NVML {official.version} in {directory}: " + ("compared" if strict else "compared, as an older header"))
    return errors


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--abi", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "src/abi")
    arguments.add_argument("--names", action="store_true")
    arguments.add_argument("--headers", type=pathlib.Path)
    arguments.add_argument("--cxx", default="g++", help="the compiler, with its launcher if it has one")
    options = arguments.parse_args()
    abi = options.abi.resolve()
    errors = check_names(abi)
    if not options.names:
        found = [h for h in ("cuda.h", "nvml.h") if options.headers and (options.headers / h).exists()]
        if not found and not errors:
            print(f"skipped: neither cuda.h nor nvml.h in {options.headers} (tools/fetch_headers.sh gets them)")
            return SKIP
        if "cuda.h" in found:
            errors += check_cuda(abi, options.cxx.split(), options.headers)
        if "nvml.h" in found:
            errors += check_nvml(abi, options.cxx.split(), options.headers)
    for error in errors:
        print("error: " + error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
