# SPDX-License-Identifier: Apache-2.0
"""Two replicas of the scheduler as HAMi's chart deploys them: each a pod with kube-scheduler and hami-scheduler on its
own host, one lease, and a Service that sends the webhook to the pod with the leader's label."""
import http.client
import json
import signal
import threading
import time

from rig import extender, fake_nodes, metrics
from rig.control_plane import answers
from rig.extender import NAME
from rig.programs import Failed, free_ports, run, wait_for
from rig.rights import grant

LEASE = "hami-replicas"  # the lease, the profile that they schedule, and the webhook
ADDRESSES = {"one": "10.97.0.11", "two": "10.97.0.12"}
PORT = 9443
ROLE = "hami.io/scheduler-role"
COMPONENT = {"app.kubernetes.io/component": "hami-scheduler"}
OURS = {"e2e/webhook": LEASE, "hami.io/webhook": "ignore"}  # labels of pods for these replicas and for nobody else
# Shorter than usual, in the same proportions: tests do not wait 15 s for a lease to run out.
ELECTION = {
    "leaderElect": True, "resourceName": LEASE, "resourceNamespace": "kube-system",
    "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s",
}  # fmt: skip


# kube-scheduler's own role names its own lease only.
RULES = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]}]


class Replica:
    """One pod: its programs, and the kubelet's word about it."""

    def __init__(self, plane, program, name, namespace):
        self.plane, self.program, self.name, self.namespace = plane, program, name, namespace
        self.address, self.node = ADDRESSES[name], f"{namespace}-{name}"
        self.metrics_port, self.health_port = free_ports(2)
        self.path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.hami = self.kube = None

    def start(self):
        admin = self.plane.admin
        fake_nodes.create(admin, self.node, f"{self.namespace}-hosts", [])
        host = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', self.name)
        spec = {"nodeName": self.node, "containers": [{"name": "c", "image": "local.test/nothing:1"}]}
        meta = {"name": self.name, "labels": COMPONENT | {"hami.io/webhook": "ignore"}}
        admin.create(self.path.rpartition("/")[0], {"metadata": meta, "spec": spec})
        self.hami = extender.start(
            self.plane, self.program, f"{NAME}-{self.name}", f"{self.address}:{PORT}", self.metrics_port,
            f"--scheduler-name={LEASE}", "--leader-elect", f"--leader-elect-resource-name={LEASE}",
            "--leader-elect-resource-namespace=kube-system",
            pod=(self.name, self.namespace), tls=LEASE, within=host)  # fmt: skip
        url = f"https://{self.address}:{PORT}"
        self.hami.wait_until("healthy", lambda: answers(url + "/healthz"))
        self.say_ready(True)
        self.kube = self.plane.start_scheduler(
            f"kube-scheduler-{self.name}", [LEASE], url, self.health_port, ELECTION, host)  # fmt: skip

    def say_ready(self, ready):
        status = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}]}
        status["conditions"] = [{"type": "Ready", "status": str(ready)}]
        self.plane.admin.patch(self.path + "/status", {"status": status})

    def end(self, number):
        """The whole pod at once, by that signal; and the kubelet notices. The exit statuses of its programs."""
        for program in (self.kube, self.hami):
            program.signal(number)
        self.say_ready(False)
        return [program.child.wait(30) for program in (self.kube, self.hami)]

    def kill(self):
        self.end(signal.SIGKILL)

    # ---- what it says

    def leads(self):
        samples = metrics.parse(metrics.scrape(f"http://127.0.0.1:{self.metrics_port}/metrics"))
        return set(metrics.select(samples, "hami_scheduler_leader").values()) == {1}

    def role(self):
        return self.plane.admin.get(self.path)["metadata"]["labels"].get(ROLE)

    def post(self, route, body, timeout):
        """The answer to a call at this replica alone; None when there is none in that time."""
        connection = self.plane.admin.connect(timeout)  # the same authority, the same TLS
        connection.host, connection.port = self.address, PORT
        try:
            connection.request("POST", route, json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())
        except TimeoutError:
            return None
        finally:
            connection.close()


class Replicas:
    def __init__(self, plane, program, namespace):
        self.plane, self.namespace = plane, namespace
        self.all = [Replica(plane, program, name, namespace) for name in ADDRESSES]

    def start(self):
        for address in ADDRESSES.values():
            run(["ip", "address", "replace", f"{address}/32", "dev", "lo"])
        service = f"{NAME}.{self.namespace}.svc"
        hosts = (f"DNS:{service}", *(f"IP:{address}" for address in ADDRESSES.values()))
        self.plane.pki.issue(LEASE, f"/CN={NAME}", hosts)
        where = {"service": {"name": NAME, "namespace": self.namespace, "path": "/webhook", "port": 443}}
        where["caBundle"] = self.plane.pki.bundle()
        spec = {"selector": COMPONENT | {ROLE: "leader"}, "ports": [{"port": 443, "targetPort": PORT}]}
        meta = {"name": NAME, "namespace": self.namespace}
        self.plane.kubectl.apply(
            *grant("system:kube-scheduler", LEASE, RULES, "kube-system"),
            {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec},
        )
        for one in self.all:
            one.start()
        self.wait_for_leader(self.all)
        self.plane.kubectl.apply(extender.webhook(LEASE, where, {"matchLabels": OURS}))
        wait_for("the webhook to be reached", lambda: self.mutates() == LEASE, 30)

    def wait_for_leader(self, candidates):
        """The one of them that leads, once it does and its label says so."""

        def leader():
            leading = [one for one in candidates if one.leads()]
            assert len(leading) <= 1
            return leading[0] if leading and leading[0].role() == "leader" else None

        return wait_for("a leader", leader, 60)

    def pair(self):
        """(the leader, the other one)"""
        leader = self.wait_for_leader(self.all)
        return leader, next(one for one in self.all if one is not leader)

    def probe(self):
        """A pod as the webhook leaves it, that never comes to be."""
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}
        container = {"name": "main", "image": "local.test/nothing:1", "resources": {"limits": limits}}
        meta = {"name": "probe", "labels": OURS}
        where = f"/api/v1/namespaces/{self.namespace}/pods?dryRun=All"
        return self.plane.admin.create(where, {"metadata": meta, "spec": {"containers": [container]}})

    def mutates(self):
        return self.probe()["spec"]["schedulerName"]

    def stop(self):
        self.plane.kubectl("delete", "mutatingwebhookconfiguration", LEASE, "--ignore-not-found")
        for one in self.all:
            for program in (one.kube, one.hami):
                if program is not None:
                    program.stop()
            self.plane.kubectl("delete", "node", one.node, "--ignore-not-found")
        self.plane.kubectl("delete", "lease", "-n", "kube-system", LEASE, "--ignore-not-found")


class Watchman:
    """Asks the webhook through the Service, again and again, as if pods were created all the time."""

    def __init__(self, replicas):
        self.replicas = replicas
        self.answered, self.failures = 0, []  # (when, why)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="watchman", daemon=True)

    def __enter__(self):
        self.thread.start()
        wait_for("the first answer", lambda: self.answered)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(30)

    def watch(self):
        while not self.over.wait(0.02):
            began = time.monotonic()
            try:
                if self.replicas.mutates() != LEASE:
                    raise Failed("the pod was not mutated")
                self.answered += 1
            except (OSError, http.client.HTTPException, Failed) as error:
                self.failures.append((began, str(error)))

    def more(self, count=20):
        """Waits for so many more answers."""
        goal = self.answered + count
        wait_for(f"{count} more answers of the webhook", lambda: self.answered >= goal, 30)
