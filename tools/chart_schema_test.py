#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
import unittest

import chart_schema

META = {"namedType": "Meta"}
TYPES = {
    "Meta": {"name": "Meta", "map": {"fields": [{"name": "name", "type": {"scalar": "string"}}]}},
    "io.k8s.api.apps.v1.Deployment": {"name": "io.k8s.api.apps.v1.Deployment", "map": {"fields": [
        {"name": "apiVersion", "type": {"scalar": "string"}},
        {"name": "kind", "type": {"scalar": "string"}},
        {"name": "metadata", "type": META},
        {"name": "replicas", "type": {"scalar": "numeric"}},
        {"name": "labels", "type": {"map": {"elementType": {"scalar": "string"}}}},
        {"name": "items", "type": {"list": {"elementType": META}}},
    ]}},
}  # fmt: skip


def wrong(**fields):
    thing = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}} | fields
    return chart_schema.check(TYPES, [thing])[2]


class Check(unittest.TestCase):
    def test_what_fits_is_no_mistake(self):
        self.assertEqual(wrong(replicas=2, labels={"a": "b"}, items=[{"name": "y"}], metadata={"name": None}), [])

    def test_unknown_fields_are_named_by_their_place(self):
        self.assertEqual(wrong(replica=2), ["Deployment/x.replica: unknown"])
        self.assertEqual(wrong(items=[{"name": "a"}, {"nom": "b"}]), ["Deployment/x.items[1].nom: unknown"])

    def test_values_of_another_kind_are_named(self):
        for fields in ({"replicas": "2"}, {"replicas": True}, {"labels": {"a": 1}}, {"items": {}}, {"metadata": []}, {"labels": 1}):
            self.assertEqual(len(wrong(**fields)), 1, fields)

    def test_a_kind_that_the_version_lacks_is_a_mistake(self):
        self.assertIn("has no Deployment in apps/v2", wrong(apiVersion="apps/v2")[0])

    def test_kinds_of_others_are_counted_only(self):
        thing = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "spec": {"what": "ever"}}
        self.assertEqual(chart_schema.check(TYPES, [thing, None]), (0, 1, []))


if __name__ == "__main__":
    unittest.main()
