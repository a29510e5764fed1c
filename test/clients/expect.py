# SPDX-License-Identifier: Apache-2.0
"""How a check of a client fails."""


class Failed(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failed(message)
