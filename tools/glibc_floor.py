#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes libraries to link with, so that what is linked starts on an older glibc than this machine's.

    glibc_floor.py FLOOR OUT COMPILER...        e.g. glibc_floor.py 2.28 build/floor cc

COMPILER is a command with its options; the glibc is the one that it links with, this machine's or another's.

A program asks for the newest version of each symbol that it was linked with. OUT gets a libc.so and its kin that have the
names of this machine's glibc, each in its newest version that FLOOR knows, and nothing else: what came later is an error of
the linker, to be supplied by ourselves (cmake/portable). They are for the linker alone; nothing of theirs is in the program.
"""
import pathlib
import re
import subprocess
import sys

# Old glibcs have what is in libc.so.6 today in four libraries; a version's name alone decides, not the file's.
LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2")
SYMBOL = re.compile(r"^\s*\d+:\s+\S+\s+(\d+)\s+(\w+)\s+(GLOBAL|WEAK)\s+DEFAULT\s+(\w+)\s+([^\s@]+)@@?(GLIBC_[\d.]+)")


def numbers(version):
    return tuple(int(part) for part in version.removeprefix("GLIBC_").split("."))


def symbols_of(library, floor):
    """{name: (version, type, size)}"""
    text = subprocess.run(["readelf", "-W", "--dyn-syms", library], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        match = SYMBOL.match(line)
        if not match or match[4] == "UND" or match[2] == "TLS":
            continue
        size, kind, _, _, name, version = match.groups()
        if numbers(version) <= floor and (name not in found or numbers(version) > numbers(found[name][0])):
            found[name] = (version, kind, int(size, 0))
    return found


def assembler(symbols):
    lines = [".text"]
    for name, (_, kind, size) in sorted(symbols.items()):
        if kind == "OBJECT":
            lines += [".bss", f".globl {name}", f".type {name}, %object", f".size {name}, {size}", f"{name}: .zero {max(size, 1)}"]
        else:
            lines += [".text", f".globl {name}", f".type {name}, %function", f"{name}: .byte 0"]
    return "\n".join(lines) + '\n.section .note.GNU-stack,"",%progbits\n'


def version_script(symbols):
    nodes = {}
    for name, (version, _, _) in symbols.items():
        nodes.setdefault(version, []).append(name)
    text, before = "", ""
    for version in sorted(nodes, key=numbers):
        text += f"{version} {{ global: {'; '.join(sorted(nodes[version]))}; }}{before};\n"
        before = f" {version}"
    return text or "HAMI_NOTHING { local: *; };\n"


def path_of(compiler, name):
    return subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def loader_of(compiler, out):
    """The dynamic loader of what this compiler links."""
    probe = out / "probe"
    subprocess.run([*compiler, "-x", "c", "-", "-o", probe], input="int main(void) { return 0; }", text=True, check=True)
    headers = subprocess.run(["readelf", "-lW", probe], capture_output=True, text=True, check=True).stdout
    probe.unlink()
    return path_of(compiler, pathlib.Path(re.search(r"interpreter: (\S+)\]", headers)[1]).name)


def make(compiler, source, name, floor, out):
    symbols = symbols_of(source, floor) if source else {}
    (out / f"{name}.s").write_text(assembler(symbols))
    (out / f"{name}.map").write_text(version_script(symbols))
    command = [*compiler, "-shared", "-nostdlib", f"-Wl,-soname,{name}", f"-Wl,--version-script,{out}/{name}.map"]
    subprocess.run([*command, "-o", out / name, out / f"{name}.s"], check=True)


def main(argv):
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    floor, out, compiler = numbers(argv[0]), pathlib.Path(argv[1]).resolve(), argv[2:]
    out.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        make(compiler, path_of(compiler, name), name, floor, out)
    loader = pathlib.Path(loader_of(compiler, out))
    make(compiler, loader, loader.name, floor, out)
    nonshared = path_of(compiler, "libc_nonshared.a")
    (out / "libc.so").write_text(f"GROUP ( {out}/libc.so.6 {nonshared} AS_NEEDED ( {out}/{loader.name} ) )\n")
    (out / "libm.so").write_text(f"GROUP ( {out}/libm.so.6 )\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
