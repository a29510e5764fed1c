# SPDX-License-Identifier: Apache-2.0
"""What a user of the API server may do."""

API = "rbac.authorization.k8s.io"


def grant(user, name, rules, namespace=None):
    """A role of that name and its binding to the user: in one namespace, or in the whole cluster."""
    kind = "Role" if namespace else "ClusterRole"
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    whom = {"kind": "User", "name": user, "apiGroup": API}
    reference = {"apiGroup": API, "kind": kind, "name": name}
    role = {"apiVersion": f"{API}/v1", "kind": kind, "metadata": meta}
    return [role | {"rules": rules}, role | {"kind": kind + "Binding", "subjects": [whom], "roleRef": reference}]
