# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, read strictly: a line that is not of it is an error."""
import re
import urllib.request

from rig.programs import Failed

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')


def parse(text):
    """[(name, labels, value)]"""
    samples = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        found = SAMPLE.match(line)
        if not found:
            raise Failed(f"not a sample: {line!r}")
        samples.append((found.group(1), dict(LABEL.findall(found.group(2) or "")), float(found.group(3))))
    return samples


def select(samples, name, *keys, **wanted):
    """{(value of each key in keys): sample value} of the samples with that name and these labels."""
    chosen = {}
    for what, labels, value in samples:
        if what == name and all(labels.get(label) == text for label, text in wanted.items()):
            chosen[tuple(labels[key] for key in keys)] = value
    return chosen


def scrape(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
