# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes and containerd programs, built once per version from their Go modules.

    python3 -m rig.binaries [--list]

They are kept in $HAMI_E2E_CACHE, else $XDG_CACHE_HOME/hami-cpp/e2e, else ~/.cache/hami-cpp/e2e, a folder per version.
$HAMI_E2E_KUBERNETES names another Kubernetes than the pinned one (v1.29.15): its go.mod is made from the module's own.
Exit status 3: they are not there and can not be had here (no Go, or its module proxy does not answer); standard output
says why, and nothing else. The first build takes some minutes and 5 GB of Go's own caches.
"""
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent.parent
UNAVAILABLE = 3


class Source:
    """One go.mod, the module it is about and the programs we want of it."""

    mod = "readonly"

    def __init__(self, name, module, programs, cgo, tags=()):
        self.module, self.programs, self.cgo, self.tags = module, programs, cgo, tags
        self.folder = self.where(name)
        self.version, self.go = self.pins()
        self.bin = cache() / f"{name}-{self.version}"

    def where(self, name):
        return HERE / name

    def pins(self):
        """The version, and the Go that it wants."""
        text = (self.folder / "go.mod").read_text()
        version = re.search(rf"^\s*(?:require )?{re.escape(self.module)} (v\S+)", text, re.MULTILINE).group(1)
        return version, tuple(int(n) for n in re.search(r"^go ([\d.]+)$", text, re.MULTILINE).group(1).split("."))

    def prepare(self):
        """What has to be there before Go is asked."""

    def minor(self):
        return int(self.version.split(".")[1])

    def package(self, program):
        return f"{self.module}/cmd/{program}"

    def missing(self):
        return [name for name in self.programs if not (self.bin / name).exists()]

    def stamp(self):
        """Linker flags that tell the program its version; Kubernetes ends at start when that is not vN.N.N."""
        if self.module != "k8s.io/kubernetes":
            return f"-s -w -X {self.module}/version.Version={self.version}"
        where = "k8s.io/component-base/version"
        major, minor, _ = self.version[1:].split(".", 2)
        values = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
        return "-s -w " + " ".join(f"-X {where}.{key}={value}" for key, value in values.items())


class Other(Source):
    """Another Kubernetes than the pinned one. Its own go.mod replaces its staging modules by folders of its own tree; here
    each is replaced by the release that was published from it (v1.N.M is v0.N.M there)."""

    mod = "mod"

    def __init__(self, other, name, module, programs, cgo):
        self.other = other
        super().__init__(name, module, programs, cgo)

    def where(self, name):
        return cache() / f"modules/{name}-{self.other}"

    def pins(self):
        return self.other, (1, 24)

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "go.mod").exists():
            return
        command = ["go", "mod", "download", "-json", f"{self.module}@{self.version}"]
        text = subprocess.run(command, cwd=self.folder, env=go_environment(self), capture_output=True, text=True, check=False).stdout
        found = json.loads(text or "{}")
        if "GoMod" not in found:
            raise LookupError(found.get("Error", f"{self.module} {self.version} cannot be fetched").splitlines()[-1])
        text = pathlib.Path(found["GoMod"]).read_text()
        text = re.sub(r"^module .*$", "module hami-cpp/e2e/kubernetes", text, count=1, flags=re.MULTILINE)
        text = re.sub(r"=> \./staging/src/(\S+)$", rf"=> \1 v0{self.version[2:]}", text, flags=re.MULTILINE)
        (self.folder / "go.mod").write_text(f"{text}\nrequire {self.module} {self.version}\n")


def cache():
    if os.environ.get("HAMI_E2E_CACHE"):
        return pathlib.Path(os.environ["HAMI_E2E_CACHE"])
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "hami-cpp/e2e"


def kubernetes():
    # cgo is what the kubelet wants; the same for all, or every package would be compiled twice.
    programs = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "kubelet")
    words = ("kubernetes", "k8s.io/kubernetes", programs, "1")
    other = os.environ.get("HAMI_E2E_KUBERNETES")
    if not other:
        return Source(*words)
    if not re.fullmatch(r"v1\.\d+\.\d+", other):
        raise SystemExit(f"HAMI_E2E_KUBERNETES: {other!r} is no version of Kubernetes; one looks like v1.29.15")
    return Other(other, *words)


def containerd():
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    tags = ("no_btrfs", "no_devmapper", "no_zfs")
    return Source("containerd", "github.com/containerd/containerd/v2", programs, cgo="0", tags=tags)


def go_environment(source):
    return dict(os.environ, GOTOOLCHAIN="local", GOFLAGS=f"-mod={source.mod}", CGO_ENABLED=source.cgo, GOWORK="off")


def why_not(sources):
    """None when Go is there, new enough, and has or can fetch every module; else one line that says what is missing."""
    newest = max(source.go for source in sources)
    wanted = ".".join(map(str, newest))
    try:
        said = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return f"Go is not installed; the Kubernetes programs are built with Go {wanted} or newer"
    found = re.search(r"go(\d+(?:\.\d+)*)", said)
    if not found or tuple(map(int, found.group(1).split("."))) < newest:
        return f"`go version` says {said.strip()!r}; the Kubernetes programs are built with Go {wanted} or newer"
    for source in sources:
        try:
            source.prepare()
        except LookupError as error:
            return str(error)
        packages = [source.package(name) for name in source.missing()]
        fetched = subprocess.run(
            ["go", "list", "-deps", *packages],
            cwd=source.folder, env=go_environment(source), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            check=False,
        )  # fmt: skip
        if fetched.returncode != 0:
            words = fetched.stderr.strip().splitlines() or ["(go said nothing)"]
            return f"the Go modules of {source.module} {source.version} can not be fetched: {words[-1].strip()}"
    return None


def build(source):
    source.bin.mkdir(parents=True, exist_ok=True)
    for name in source.missing():
        began = time.monotonic()
        unfinished = source.bin / f".{name}.{os.getpid()}"
        command = ["nice", "-n", "19", "go", "build", "-trimpath", "-tags", ",".join(source.tags), "-ldflags"]
        command += [source.stamp(), "-o", str(unfinished), source.package(name)]
        subprocess.run(command, cwd=source.folder, env=go_environment(source), check=True)
        unfinished.replace(source.bin / name)
        print(f"built {name} {source.version} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def provide(sources):
    """Builds what is missing; returns None, or why that can not be done here."""
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / ".lock", "w", encoding="ascii") as lock:  # two sessions at once build once
        fcntl.flock(lock, fcntl.LOCK_EX)
        lacking = [source for source in sources if source.missing()]
        if not lacking:
            return None
        reason = why_not(lacking)
        if reason is not None:
            return reason
        names = ", ".join(name for source in lacking for name in source.missing())
        print(f"building {names} into {cache()}: minutes, once", file=sys.stderr, flush=True)
        for source in lacking:
            build(source)
        return None


def main(argv):
    sources = [kubernetes(), containerd()]
    if argv == ["--list"]:
        for source in sources:
            for name in source.programs:
                print(source.bin / name, "" if (source.bin / name).exists() else "(not built yet)")
        return 0
    if argv:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        reason = provide(sources)
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:6])} …: exit status {error.returncode}", file=sys.stderr)
        return 1
    if reason:
        print(reason)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
