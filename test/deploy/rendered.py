#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the chart's renderings must say. tools/chart-check renders each preset for each version into FOLDER first; what needs
a rendering of its own is rendered here.

    rendered.py FOLDER
"""
import json
import pathlib
import subprocess
import sys
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
HELM = [str(ROOT / "tools/helm"), "template", "hami", str(ROOT / "deploy/chart"), "--namespace", "kube-system"]
FOLDER = None
VERSIONS = ("1.26", "1.29", "1.32", "1.35")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(preset, version="1.35"):
    return [one for one in yaml.load_all((FOLDER / f"{preset}.{version}.yaml").read_text(), LOADER) if one]


def helm(*words, fails=False, version="1.35.0"):
    done = subprocess.run([*HELM, "--kube-version", version, *words], capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == fails, done.stderr + done.stdout[-300:]
    return done.stderr if fails else [one for one in yaml.load_all(done.stdout, LOADER) if one]


def one(things, kind, name):
    found = [thing for thing in things if (thing["kind"], thing["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, (kind, name, [(t["kind"], t["metadata"]["name"]) for t in things])
    return found[0]


def pod_of(thing):
    return thing["spec"]["template"]["spec"]


def workloads(things):
    return {t["metadata"]["name"]: t for t in things if t["kind"] in ("Deployment", "DaemonSet")}


def sums(things):
    return {name: t["spec"]["template"]["metadata"].get("annotations", {}) for name, t in workloads(things).items()}


class Rendered(unittest.TestCase):
    def test_kube_scheduler_is_of_the_clusters_version(self):
        for version in VERSIONS:
            pod = pod_of(one(read("default", version), "Deployment", "hami-scheduler"))
            self.assertEqual(pod["containers"][0]["image"], f"registry.k8s.io/kube-scheduler:v{version}.0")
        gke = helm(version="v1.29.3-gke.1282000")
        image = pod_of(one(gke, "Deployment", "hami-scheduler"))["containers"][0]["image"]
        self.assertEqual(image, "registry.k8s.io/kube-scheduler:v1.29.3")

    def test_older_kubernetes_is_refused(self):
        self.assertIn("1.26", helm(version="1.25.16", fails=True))

    def test_every_program_has_the_least_privilege(self):
        for name, thing in workloads(read("default")).items():
            for container in pod_of(thing)["containers"]:
                context = container["securityContext"]
                with self.subTest(name, container=container["name"]):
                    self.assertFalse(context.get("privileged", False))
                    self.assertFalse(context["allowPrivilegeEscalation"])
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                    self.assertNotIn("SYS_ADMIN", context["capabilities"].get("add", []))
            if name == "hami-scheduler":
                self.assertTrue(all(c["securityContext"]["runAsNonRoot"] for c in pod_of(thing)["containers"]))

    def test_rights_come_with_the_mode_that_needs_them(self):
        def plugin(things):
            pod = pod_of(one(things, "DaemonSet", "hami-device-plugin"))
            return pod, pod["containers"][0]

        pod, container = plugin(read("default"))
        self.assertNotIn("hostPID", pod)
        names = {env["name"] for env in container["env"]}
        self.assertNotIn("NVIDIA_MIG_CONFIG_DEVICES", names)
        self.assertFalse([volume for volume in pod["volumes"] if volume["name"].startswith("mps")])

        for value in ("devicePlugin.mig.enabled=true", "devicePlugin.migStrategy=single"):
            pod, container = plugin(helm("--set", value))
            context = container["securityContext"]
            self.assertIn("SYS_ADMIN", context["capabilities"]["add"])
            self.assertFalse(context["privileged"])
            self.assertNotIn("hostPID", pod)
            makes = {"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": "all"} in container["env"]
            self.assertEqual(makes, "mig.enabled" in value)

        pod, container = plugin(read("modes"))
        self.assertTrue(pod["hostPID"])
        self.assertEqual(container["securityContext"], {"privileged": True})
        self.assertIn("--mps-root=/run/mps", container["args"])
        self.assertIn("--mps-control=/usr/bin/nvidia-cuda-mps-control", container["args"])
        paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        self.assertEqual((paths["mps"], mounts["mps"]), ("/run/mps", "/run/mps"), "containers mount the node's path")
        self.assertEqual((paths["mps-shm"], mounts["mps-shm"]), ("/run/mps/shm", "/dev/shm"))

        _, container = plugin(helm("--set", "devicePlugin.mps.enabled=true,devicePlugin.securityContext.runAsUser=0"))
        self.assertEqual(container["securityContext"], {"runAsUser": 0}, "what is given wins")
        self.assertIn("root", helm("--set", "devicePlugin.mps.root=relative", fails=True))

    def test_every_container_has_probes(self):
        for thing in workloads(read("default")).values():
            for container in pod_of(thing)["containers"]:
                self.assertIn("readinessProbe", container)
                self.assertIn("livenessProbe", container)

    def test_hamis_defaults_come_back_together(self):
        things = read("hami-defaults")
        deployment = one(things, "Deployment", "hami-scheduler")
        self.assertEqual(deployment["spec"]["replicas"], 1)
        kube = pod_of(deployment)["containers"][0]
        self.assertTrue(kube["image"].startswith("registry.cn-hangzhou.aliyuncs.com/google_containers/kube-scheduler:"))
        self.assertNotIn("livenessProbe", kube)
        plugin = pod_of(one(things, "DaemonSet", "hami-device-plugin"))
        self.assertTrue(plugin["containers"][0]["securityContext"]["privileged"])
        self.assertFalse(plugin["tolerations"])
        ports = {t["metadata"]["name"]: t["spec"] for t in things if t["kind"] == "Service"}
        self.assertEqual(ports["hami-scheduler"]["ports"][0]["nodePort"], 31998)
        self.assertEqual(ports["hami-scheduler-metrics"]["ports"][0]["nodePort"], 31993)
        self.assertEqual(ports["hami-monitor"]["ports"][0]["nodePort"], 31992)
        self.assertFalse([t for t in things if t["kind"] in ("NetworkPolicy", "PodDisruptionBudget")])

    def test_the_page_is_reached_only_where_it_is_switched_on(self):
        for preset, there in (("default", False), ("page", True)):
            things = read(preset)
            scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))["containers"][1]
            self.assertEqual("--page-bind-address=0.0.0.0:9396" in scheduler["args"], there, preset)
            services = [t["metadata"]["name"] for t in things if t["kind"] == "Service"]
            self.assertEqual("hami-scheduler-page" in services, there, preset)
            rules = one(things, "ClusterRole", "hami-scheduler")["rules"]
            reviews = [r for r in rules if "tokenreviews" in r["resources"]]
            self.assertEqual(bool(reviews), there, preset)
        reader = one(things, "ClusterRoleBinding", "hami-scheduler-page-reader")
        self.assertEqual(reader["subjects"][0]["name"], "sre")
        ports = [p["port"] for t in things if t["kind"] == "NetworkPolicy" for i in t["spec"]["ingress"] for p in i["ports"]]
        self.assertIn(9396, ports)

    def test_the_scheduler_may_ask_the_monitors_for_its_page(self):
        for preset in ("default", "page"):
            things = read(preset)
            scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))["containers"][1]
            self.assertIn("--page-monitors=kube-system/hami-monitor", scheduler["args"])
            monitors = [t["metadata"]["name"] for t in things if t["kind"] == "Service"]
            self.assertIn("hami-monitor", monitors)
            rules = one(things, "Role", "hami-scheduler-page")["rules"]
            self.assertEqual(rules, [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]}])
        # Where metrics are held back from all but some, the scheduler is one of these.
        ingress = one(things, "NetworkPolicy", "hami-monitor")["spec"]["ingress"]
        selectors = [peer["podSelector"]["matchLabels"] for i in ingress for peer in i["from"] if "podSelector" in peer]
        scheduler = one(things, "Deployment", "hami-scheduler")["spec"]["template"]["metadata"]["labels"]
        self.assertEqual([s.items() <= scheduler.items() for s in selectors], [True])
        others = [one(things, "NetworkPolicy", n)["spec"]["ingress"][-1]["from"] for n in ("hami-device-plugin", "hami-scheduler")]
        self.assertEqual([len(peers) for peers in others], [1, 1], "they are not asked")
        for off in ("scheduler.page.use=false", "devicePlugin.monitor.enabled=false"):
            things = helm(f"--set={off}")
            scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))["containers"][1]
            self.assertFalse([word for word in scheduler["args"] if "page-monitors" in word], off)
            self.assertFalse([t for t in things if t["kind"] == "Role" and t["metadata"]["name"] == "hami-scheduler-page"], off)

    def test_hamis_values_are_taken(self):
        things = read("hami-like")
        plugin = pod_of(one(things, "DaemonSet", "hami-device-plugin"))
        env = {e["name"]: e.get("value") for e in plugin["containers"][0]["env"]}
        self.assertEqual(env["DP_DISABLE_HEALTHCHECKS"], "xids")
        self.assertEqual(env["ENABLE_TOPOLOGY_SCORE"], "true")
        monitor = pod_of(one(things, "DaemonSet", "hami-monitor"))["containers"][0]
        self.assertIn({"name": "A", "value": "1"}, monitor["env"])
        self.assertEqual(plugin["imagePullSecrets"], [{"name": "private"}])
        self.assertTrue(plugin["containers"][0]["image"].endswith(":v9.9.9"))
        scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))
        self.assertEqual(scheduler["containers"][0]["image"], "mirror.example/k8s/kube-scheduler:v1.32.1")
        self.assertIn("--node-label-selector=usage=gpu", scheduler["containers"][1]["args"])
        hook = one(things, "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]
        self.assertEqual(hook["clientConfig"]["url"], "https://10.0.0.1:31998/webhook")
        self.assertIn({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["monitoring"]},
                      hook["namespaceSelector"]["matchExpressions"])  # fmt: skip
        config = yaml.safe_load(one(things, "ConfigMap", "hami-scheduler-device")["data"]["device-config.yaml"])
        self.assertEqual((config["nvidia"]["deviceSplitCount"], config["nvidia"]["gpuCorePolicy"]), (20, "force"))

    def test_a_webhook_that_must_answer_spares_what_runs_the_cluster(self):
        for version in VERSIONS:
            hook = one(read("strict", version), "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]
            spared = [e["values"] for e in hook["namespaceSelector"]["matchExpressions"] if e["key"].endswith("metadata.name")]
            self.assertEqual(spared, [["monitoring", "kube-system"]])
            self.assertEqual("matchConditions" in hook, version in ("1.32", "1.35"))
        unsaid = one(read("default"), "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]
        self.assertEqual((unsaid["failurePolicy"], "matchConditions" in unsaid), ("Ignore", False))

    def test_both_sides_agree_who_chooses_the_node(self):
        for preset, mode, verb, weight in (("default", "filter", None, 1), ("strict", "prioritize", "prioritize", 5)):
            things = read(preset)
            config = yaml.safe_load(one(things, "ConfigMap", "hami-scheduler")["data"]["config.yaml"])["extenders"][0]
            self.assertEqual((config.get("prioritizeVerb"), config["weight"]), (verb, weight))
            scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))["containers"][1]
            self.assertIn(f"--extender-mode={mode}", scheduler["args"])

    def test_evictions_are_allowed_where_they_are_wanted(self):
        for preset, wanted in (("default", False), ("strict", True)):
            things = read(preset)
            rules = one(things, "ClusterRole", "hami-scheduler")["rules"]
            self.assertEqual(any("pods/eviction" in rule["resources"] for rule in rules), wanted)
            config = yaml.safe_load(one(things, "ConfigMap", "hami-scheduler")["data"]["config.yaml"])["extenders"][0]
            self.assertEqual("preemptVerb" in config, wanted)
            scheduler = pod_of(one(things, "Deployment", "hami-scheduler"))["containers"][1]
            self.assertEqual("--preemption" in scheduler["args"], wanted)

    def test_a_plugin_is_held_to_its_node_where_tokens_name_it(self):
        for version in VERSIONS:
            every = [t for t in read("default", version) if t["kind"] == "ValidatingAdmissionPolicy"]
            policies = [t for t in every if not t["metadata"]["name"].endswith("-annotations")]
            self.assertEqual(len(every) - len(policies), int(version in ("1.32", "1.35")), "annotations are guarded")
            self.assertEqual(len(policies), int(version in ("1.32", "1.35")))
            for policy in policies:
                # Requests of other accounts are not looked at: a mistake in it can hold up no other program.
                conditions = policy["spec"]["matchConditions"]
                self.assertEqual([c["expression"] for c in conditions],
                                 ["request.userInfo.username == 'system:serviceaccount:kube-system:hami-device-plugin'"])  # fmt: skip
        self.assertFalse([t for t in read("hami-defaults") if t["kind"] == "ValidatingAdmissionPolicy"])

    def test_our_own_pods_never_wait_for_the_webhook(self):
        for preset in ("default", "strict", "hami-like"):
            for name, thing in workloads(read(preset)).items():
                labels = thing["spec"]["template"]["metadata"]["labels"]
                self.assertEqual(labels.get("hami.io/webhook"), "ignore", (preset, name))

    def test_a_change_of_configuration_starts_the_pods_that_read_it(self):
        before = sums(helm())
        device = sums(helm("--set=devicePlugin.deviceSplitCount=5"))
        for name in ("hami-scheduler", "hami-device-plugin"):
            self.assertNotEqual(before[name]["checksum/device-config"], device[name]["checksum/device-config"])
        nodes = sums(helm('--set-json=devicePlugin.nodeConfiguration.config="{\\"nodeconfig\\":[]}"'))
        self.assertNotEqual(before["hami-device-plugin"], nodes["hami-device-plugin"])
        self.assertEqual(before["hami-scheduler"], nodes["hami-scheduler"])
        renamed = sums(helm("--set=schedulerName=other"))
        self.assertNotEqual(before["hami-scheduler"], renamed["hami-scheduler"])

    def test_every_mounted_configmap_is_there_and_summed(self):
        things = read("default")
        maps = {t["metadata"]["name"] for t in things if t["kind"] == "ConfigMap"}
        for name, thing in workloads(things).items():
            mounted = {v["configMap"]["name"] for v in pod_of(thing)["volumes"] if "configMap" in v}
            self.assertLessEqual(mounted, maps, name)
            annotations = thing["spec"]["template"]["metadata"].get("annotations", {})
            self.assertEqual(len([key for key in annotations if key.startswith("checksum/")]), len(mounted), name)

    def test_paths_that_would_break_isolation_are_refused(self):
        self.assertIn("libPath", helm("--set=devicePlugin.libPath=/opt/vgpu", fails=True))
        self.assertIn("ctrPath", helm("--set=devicePlugin.monitor.ctrPath=/opt/containers", fails=True))

    def test_hamis_image_is_refused_with_the_remedy(self):
        said = helm("--set=devicePlugin.image.repository=projecthami/hami", fails=True)
        self.assertIn("none of this chart's programs", said)

    def test_values_that_can_not_be_meant_are_refused(self):
        for wrong in ("devicePlugin.deviceSplitCount=0", "compat.hamiDefault=true", "scheduler.replicas=no",
                      "scheduler.admissionWebhook.failurePolicy=fail", "devicePlugin.deviceMemoryScaling=0"):  # fmt: skip
            self.assertIn(wrong.partition("=")[0].rpartition(".")[2], helm("--set", wrong, fails=True), wrong)

    def test_a_webhook_without_certificate_is_refused(self):
        self.assertIn("certificate", helm("--set=scheduler.patch.enabled=false", fails=True))

    def test_each_way_to_a_certificate(self):
        kinds = lambda preset: {t["kind"] for t in read(preset)}  # noqa: E731
        self.assertLessEqual({"Job", "CronJob", "Secret"}, kinds("default"))
        self.assertLessEqual({"Certificate", "Issuer"}, kinds("cert-manager"))
        hook = one(read("cert-manager"), "MutatingWebhookConfiguration", "hami-webhook")
        self.assertEqual(hook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], "kube-system/hami-scheduler-serving")
        for preset in ("cert-manager", "by-hand", "no-webhook"):
            self.assertFalse({"Job", "CronJob"} & kinds(preset), preset)
        self.assertNotIn("MutatingWebhookConfiguration", kinds("no-webhook"))
        by_hand = one(read("by-hand"), "MutatingWebhookConfiguration", "hami-webhook")["webhooks"][0]
        self.assertEqual(by_hand["clientConfig"]["caBundle"], "Zm9v")

    def test_one_replica_without_a_lease_is_replaced_not_doubled(self):
        deployment = one(read("no-webhook"), "Deployment", "hami-scheduler")["spec"]
        self.assertEqual((deployment["replicas"], deployment["strategy"]), (1, {"type": "Recreate"}))

    def test_node_feature_discovery_is_one_way_among_labels(self):
        pod = pod_of(one(read("node"), "DaemonSet", "hami-device-plugin"))
        self.assertNotIn("nodeSelector", pod)
        wanted = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        keys = [term["matchExpressions"][0]["key"] for term in wanted]
        self.assertIn("feature.node.kubernetes.io/pci-10de.present", keys)
        self.assertIn("gpu", keys)
        self.assertEqual(pod["runtimeClassName"], "nvidia")

    def test_monitoring_objects_come_with_rules_and_board(self):
        things = read("monitoring")
        self.assertTrue(one(things, "PrometheusRule", "hami")["spec"]["groups"][0]["rules"])
        board = one(things, "ConfigMap", "hami-dashboard")
        self.assertEqual(json.loads(board["data"]["hami-vgpu-dashboard.json"])["uid"], "hami-vgpu-metrics")
        self.assertEqual(one(things, "ServiceMonitor", "hami-scheduler")["metadata"]["labels"]["release"], "prometheus")

    def test_every_value_has_a_type_in_the_schema(self):
        values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
        schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text())
        missing = []

        def walk(value, form, place):
            for key, item in value.items():
                if key not in form.get("properties", {}):
                    missing.append(f"{place}.{key}")
                elif isinstance(item, dict) and item:
                    walk(item, form["properties"][key], f"{place}.{key}")

        walk(values, schema, "")
        self.assertEqual(missing, [])


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv.pop(1))
    unittest.main()
