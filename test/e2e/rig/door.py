# SPDX-License-Identifier: Apache-2.0
"""The API server at the address of its Service, for pods: there is no kube-proxy."""
import socket
import threading

from rig.programs import run

ADDRESS, PORT = "10.96.0.1", 443


class Door:
    """Passes connections on to a port of loopback."""

    def __init__(self, port):
        run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"])
        self.port = port
        self.listener = socket.create_server((ADDRESS, PORT), backlog=128)
        threading.Thread(target=self.serve, name="door", daemon=True).start()

    def serve(self):
        while True:
            try:
                outside, _ = self.listener.accept()
            except OSError:
                return
            try:
                inside = socket.create_connection(("127.0.0.1", self.port), 10)
            except OSError:
                outside.close()
                continue
            inside.settimeout(None)
            for source, sink in ((outside, inside), (inside, outside)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
