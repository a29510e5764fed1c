# SPDX-License-Identifier: Apache-2.0
"""What the guests share: they fill GPU memory until it is refused and report what they saw as one JSON line."""
import json
import sys

MIB = 1 << 20


def fill(allocate, refused, least=64 << 10):
    """Allocates ever smaller chunks until even `least` bytes are refused.

    `allocate(bytes)` returns a handle or raises `refused`. Returns (handles, bytes, exception name, exception text).
    """
    handles, total, name, text = [], 0, None, None
    for chunk in (256 * MIB, 32 * MIB, 4 * MIB, least):
        while True:
            try:
                handles.append(allocate(chunk))
            except refused as error:
                name, text = type(error).__name__, str(error)
                break
            total += chunk
    return handles, total, name, text


def report(**facts):
    json.dump(facts, sys.stdout)
    sys.stdout.write("\n")
    sys.stdout.flush()
