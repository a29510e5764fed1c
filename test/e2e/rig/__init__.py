# SPDX-License-Identifier: Apache-2.0
"""The rig of the end-to-end tests: real Kubernetes programs on loopback, and who stands in for hardware."""
