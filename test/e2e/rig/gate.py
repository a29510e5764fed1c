# SPDX-License-Identifier: Apache-2.0
"""Stands between a kube-scheduler and hami-scheduler, and holds calls back at a door until the test opens it.

It speaks HTTP to the one and HTTPS to the other, passes bodies on as they are, and tells a broken connection on as 502.
"""
import http.client
import http.server
import ssl
import threading

GATED = "hami-gated"  # the profile of a kube-scheduler whose calls pass through a gate


class Gate:
    def __init__(self, port, extender_port):
        self.extender_port = extender_port
        self.doors = {}  # route: Event, clear while the door is shut
        self.calls = []  # routes in the order of arrival
        self.arrived = threading.Condition()
        gate = self

        class Doorman(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):  # pylint: disable=invalid-name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                gate.enter(self.path)
                status, answer = gate.pass_on(self.path, body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    self.close_connection = True  # who asked has gone

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Doorman)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, name="gate", daemon=True)
        self.thread.start()

    def shut(self, route):
        self.doors[route] = threading.Event()

    def open(self, route):
        self.doors[route].set()

    def wait_at(self, route, timeout=30):
        """Returns when a call for that route stands at the door (or has passed it since the gate was built)."""
        with self.arrived:
            return self.arrived.wait_for(lambda: route in self.calls, timeout)

    def enter(self, route):
        with self.arrived:
            self.calls.append(route)
            self.arrived.notify_all()
        door = self.doors.get(route)
        if door is not None:
            door.wait(60)

    def pass_on(self, route, body):
        tls = ssl._create_unverified_context()  # pylint: disable=protected-access
        connection = http.client.HTTPSConnection("127.0.0.1", self.extender_port, context=tls, timeout=30)
        try:
            connection.request("POST", route, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 502, str(error).encode()
        finally:
            connection.close()

    def stop(self):
        for door in self.doors.values():
            door.set()
        self.server.shutdown()
        self.server.server_close()
