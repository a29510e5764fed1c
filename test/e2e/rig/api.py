# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API for the actors and for looking at results. What a user would do goes through kubectl instead."""
import http.client
import json
import ssl
import threading
import urllib.parse

from rig.programs import Failed, run

MERGE = "application/merge-patch+json"


class ApiError(Failed):
    def __init__(self, what, status, message):
        super().__init__(f"{what}: {status} {message}")
        self.status = status


class Api:
    """One identity at one server; a connection per thread, opened again when the server was away."""

    def __init__(self, port, pki, identity):
        self.port = port
        self.tls = ssl.create_default_context(cafile=str(pki.cert("ca")))
        self.tls.load_cert_chain(pki.cert(identity), pki.key(identity))
        self.mine = threading.local()

    def connect(self, timeout):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.tls, timeout=timeout)

    def call(self, method, path, body=None, kind="application/json"):
        text = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json"} | ({"Content-Type": kind} if body is not None else {})
        for attempt in (1, 2):
            connection = getattr(self.mine, "connection", None) or self.connect(30)
            fresh = getattr(self.mine, "connection", None) is None
            self.mine.connection = connection
            try:
                connection.request(method, path, text, headers)
                answer = connection.getresponse()
                raw = answer.read()
                break
            except (OSError, http.client.HTTPException):
                connection.close()
                self.mine.connection = None
                # Only a connection that had gone stale in between, and only what may be asked twice.
                if fresh or method != "GET" or attempt == 2:
                    raise
        try:
            value = json.loads(raw) if raw.strip() else {}
        except ValueError:
            value = {"message": raw[:200].decode(errors="replace")}
        self.mine.warnings = answer.headers.get_all("Warning") or []
        if answer.status >= 400:
            raise ApiError(f"{method} {path}", answer.status, value.get("message", value))
        return value

    def warnings(self, path, thing):
        """What the server warns of when `thing` is created."""
        self.create(path, thing)
        return "\n".join(self.mine.warnings)

    def get(self, path):
        return self.call("GET", path)

    def find(self, path):
        """None where there is nothing."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path, thing):
        return self.call("POST", path, thing)

    def patch(self, path, change):
        return self.call("PATCH", path, change, MERGE)

    def delete(self, path, grace=None):
        return self.call("DELETE", path, {} if grace is None else {"gracePeriodSeconds": grace})

    def pods(self, namespace=None, **query):
        where = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        return self.get(where + ("?" + urllib.parse.urlencode(query) if query else ""))["items"]

    def watch(self, path, version, seconds=30):
        """Events from `version` on, for that long. Whoever asks for the next one waits at most a second longer."""
        connection = self.connect(seconds + 5)
        try:
            query = {"watch": 1, "resourceVersion": version, "timeoutSeconds": seconds, "allowWatchBookmarks": "true"}
            connection.request("GET", path + "?" + urllib.parse.urlencode(query))
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(f"watch {path}", answer.status, answer.read()[:200])
            while True:
                line = answer.readline()
                if not line:
                    return
                yield json.loads(line)
        finally:
            connection.close()


class Kubectl:
    """kubectl, with the rights of one kubeconfig."""

    def __init__(self, program, kubeconfig):
        self.program, self.kubeconfig = program, kubeconfig

    def __call__(self, *words, stdin=None, timeout=60):
        return run([self.program, "--kubeconfig", self.kubeconfig, *words], input=stdin, timeout=timeout)

    def apply(self, *things):
        """`kubectl apply` of objects; a refusal is a Failed with kubectl's own words."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(things)})
        return self("apply", "-f", "-", stdin=text)

    def json(self, *words):
        return json.loads(self(*words, "-o", "json"))
