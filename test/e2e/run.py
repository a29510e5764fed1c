#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end tests in a room of their own.

    run.py [--remember FILE] [--counts FILE] [--halves] [pytest options]

The names of the tests that failed are in FILE afterwards, a line each; conftest's --failed takes such a file.
With --halves two rooms are made at once: one for the tests that need only a control plane, one for those with a kubelet,
whose output follows when both are done. Each half waits more than it computes. Without root's rights there is one room.
As root the tests get their own process, network and mount namespaces: nothing they start outlives them, whoever ends
them and however; no port, address or route of this machine is touched; what they write to /var, /run and /tmp stays in
the room. Without these rights they run as they are, and what needs a kubelet is skipped.
A first SIGINT or SIGTERM ends the tests in order, a second one at once.
"""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
HALVES = ("control-plane", "node")
NO_TESTS = 5  # pytest's status
# In the folder of a session: names of tests, a line each; how many passed, failed, and were skipped.
FAILED, COUNTS = "failed", "counts"


def counted(passed, failed, skipped):
    return f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else "")
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(what, result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind=None, flags=0, data=None):
    words = [None if word is None else str(word).encode() for word in (source, target, kind, data)]
    checked(f"mount {target}", LIBC.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def new_process_namespace():
    """For the children from now on. Why not, if it can not be had."""
    if os.geteuid() != 0:
        return "not root"
    try:
        checked("unshare", LIBC.unshare(CLONE_NEWPID))
    except OSError as error:
        return f"no namespaces: {error}"
    return None


def furnish(folder):
    """The first process of the room: its own mounts and network, with this machine's files under a layer of its own."""
    checked("unshare", LIBC.unshare(CLONE_NEWNS | CLONE_NEWNET))
    mount(None, "/", flags=MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    ours = os.open(folder, os.O_PATH)
    layers = folder / "layers"
    layers.mkdir()
    mount("tmpfs", layers, "tmpfs")
    for place in ("/var", "/run", "/tmp"):
        upper, work = (layers / (place.strip("/") + suffix) for suffix in ("", "-work"))
        upper.mkdir()
        work.mkdir()
        upper.chmod(os.stat(place).st_mode & 0o7777)
        mount("overlay", place, "overlay", data=f"lowerdir={place},upperdir={upper},workdir={work}")
    if not os.path.samestat(os.stat(folder), os.fstat(ours)):  # a layer lies over the session's folder
        mount(f"/proc/self/fd/{ours}", folder, flags=MS_BIND)
    os.close(ours)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def room(folder, isolated, argv):
    """The first process of the room: passes SIGTERM on, buries orphans, and ends with the status of the tests."""
    checked("prctl", LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    os.setsid()  # Ctrl-C is for the process outside, which tells us once
    if isolated is None:
        furnish(folder)
    reason = [] if isolated is None else [f"--no-kubelet-because={isolated}"]
    command = ["-m", "pytest", f"--rootdir={HERE}", f"--folder={folder}", *reason, HERE, *argv]
    tests = subprocess.Popen([sys.executable, "-B", *map(str, command)], process_group=0)
    signal.signal(signal.SIGTERM, lambda *_: tests.send_signal(signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == tests.pid:
            return os.waitstatus_to_exitcode(status)


def halves(remember, argv):
    """Both halves in rooms of their own; the status is that of the first that failed."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hami-k8s-"))
    names = {half: folder / half for half in HALVES}
    counts = {half: folder / f"{half}.counts" for half in HALVES}
    words = folder / "said"
    runs = []
    for half in HALVES:
        command = [sys.executable, "-B", __file__, "--remember", names[half], "--counts", counts[half], f"--half={half}", *argv]
        out = None if half == HALVES[0] else words.open("wb")  # its output comes when the other's has ended
        runs.append(
            subprocess.Popen(
                command, stdout=out, stderr=out and subprocess.STDOUT, start_new_session=True,
                preexec_fn=lambda: checked("prctl", LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)),
            )  # fmt: skip
        )

    def tell(number, _):
        for run in runs:
            if run.poll() is None:
                run.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tell)
    statuses = [run.wait() for run in runs]
    print(f"\n=== the tests of the half `{HALVES[1]}`", flush=True)
    sys.stdout.buffer.write(words.read_bytes())
    sys.stdout.flush()
    if all(path.exists() for path in counts.values()):
        print(counted(*map(sum, zip(*(map(int, path.read_text().split()) for path in counts.values())))))
    if remember:
        remember.write_text("".join(name.read_text() for name in names.values() if name.exists()))
    shutil.rmtree(folder, ignore_errors=True)
    failed = [status for status in statuses if status != NO_TESTS]
    worst = next((status for status in failed if status), 0) if failed else NO_TESTS
    return worst if worst >= 0 else 128 - worst


def main(argv):
    remember = counts = None
    if argv[:1] == ["--remember"]:
        remember, argv = pathlib.Path(argv[1]), argv[2:]
    if argv[:1] == ["--counts"]:
        counts, argv = pathlib.Path(argv[1]), argv[2:]
    if argv[:1] == ["--halves"]:
        if os.geteuid() == 0:
            return halves(remember, argv[1:])
        argv = argv[1:]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hami-k8s-"))
    folder.chmod(0o755)  # containers look into it
    isolated = new_process_namespace()
    first = os.fork()
    if first == 0:
        status = 70
        try:
            status = room(folder, isolated, argv)
        except OSError as error:
            print(f"the tests' room could not be made: {error}", file=sys.stderr)
        finally:
            os._exit(status if status >= 0 else 128 - status)
    told = []

    def tell(*_):
        told.append(1)
        os.kill(first, signal.SIGTERM if len(told) == 1 else signal.SIGKILL)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, tell)
    status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    if remember and (folder / FAILED).exists():  # written inside, where FILE's folder may be another
        shutil.copyfile(folder / FAILED, remember)
    if counts and (folder / COUNTS).exists():
        shutil.copyfile(folder / COUNTS, counts)
    if "--keep" in argv:
        print(f"kept: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
