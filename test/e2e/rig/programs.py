# SPDX-License-Identifier: Apache-2.0
"""The programs that a test session started, and how they end.

A program is known by its pid and only while this process is its parent: nothing is ever ended by name. Should the test
session itself be killed, the kernel kills the programs with it (setpriv --pdeathsig).
"""
import os
import pathlib
import signal
import socket
import subprocess
import time


class Failed(Exception):
    """The rig itself could not do its work: no verdict about what is tested."""


def wait_for(what, look, timeout=30.0, every=0.05):
    """Looks until `look()` is true and returns what it returned; what it raised last is part of the message."""
    deadline = time.monotonic() + timeout
    seen = None
    while True:
        try:
            seen = look()
            if seen:
                return seen
        except (OSError, Failed, AssertionError) as error:
            seen = error
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not after {timeout:g} s; last seen: {seen!r}")
        time.sleep(every)


GIVEN_PORTS = set()


def free_ports(count):
    """Ports of loopback nobody listens on and nobody was given before, below those the kernel gives to connections."""
    low = 20000
    high = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first = low + os.getpid() * 31 % (high - low)
    ports = []
    for port in [*range(first, high), *range(low, first)]:
        if len(ports) == count:
            break
        if port not in GIVEN_PORTS and is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise Failed(f"{count} free ports between {low} and {high} were not found")
    GIVEN_PORTS.update(ports)
    return ports


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Program:
    """One child process; its output goes to a log file, appended over restarts."""

    def __init__(self, name, argv, log, env=None):
        self.name, self.argv, self.log, self.env = name, [str(word) for word in argv], log, env
        self.child = None

    def start(self):
        if self.alive():
            raise Failed(f"{self.name} runs already")
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        return self

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def signal(self, number):
        if self.alive():
            self.child.send_signal(number)

    def kill(self):
        """kill -9, and the grave is dug: when this returns, the ports and locks of the program are free."""
        self.signal(signal.SIGKILL)
        if self.child is not None:
            self.child.wait()

    def stop(self, grace=15.0):
        """SIGTERM, and SIGKILL for who does not listen. Returns the exit status, None if it never ran."""
        if self.child is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            return self.child.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.child.returncode

    def expect_alive(self):
        if not self.alive():
            status = self.child.returncode if self.child else "never started"
            raise Failed(f"{self.name} ended (status {status}). Its last words, from {self.log}:\n{self.tail()}")

    def tail(self, lines=25):
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(it said nothing)"

    def wait_until(self, what, look, timeout=30.0):
        """wait_for, cut short by the program's death."""

        def look_alive():
            if not self.alive():
                return True
            return look()

        wait_for(f"{self.name}: {what}", look_alive, timeout)
        self.expect_alive()


class Programs:
    """All programs of a session, ended in the opposite order of their birth."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.born = []

    def start(self, name, argv, env=None):
        program = Program(name, argv, self.folder / f"{name}.log", env)
        self.born.append(program)
        return program.start()

    def stop_all(self, grace):
        for program in reversed(self.born):
            program.stop(grace)
        self.born.clear()


def run(argv, check=True, timeout=120, **options):
    """A short command to its end; its standard output. What it said is in the exception when it failed."""
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=timeout, check=False, **options
    )
    if check and done.returncode != 0:
        raise Failed(f"{' '.join(map(str, argv))}: status {done.returncode}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout
