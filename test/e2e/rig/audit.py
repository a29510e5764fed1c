# SPDX-License-Identifier: Apache-2.0
"""Requests that the API server wrote down, by account."""
import json

# Requests of service accounts, when they are answered, without bodies.
POLICY = {
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}  # fmt: skip


class Audit:
    def __init__(self, folder):
        self.log = folder / "audit.json"
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(POLICY))
        self.flags = [f"--audit-policy-file={policy}", f"--audit-log-path={self.log}", "--audit-log-mode=blocking"]

    def of(self, namespace, account):
        """{(verb, resource, name): status} of that account."""
        asked = {}
        user = f"system:serviceaccount:{namespace}:{account}"
        for line in self.log.read_text().splitlines():
            event = json.loads(line)
            thing = event.get("objectRef")
            if event["user"]["username"] != user or thing is None or "resource" not in thing:
                continue
            resource = "/".join(filter(None, (thing["resource"], thing.get("subresource"))))
            key = (event["verb"], resource, thing.get("name", ""))
            asked.setdefault(key, set()).add(event.get("responseStatus", {}).get("code", 0))
        return asked
