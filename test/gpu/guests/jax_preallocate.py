# SPDX-License-Identifier: Apache-2.0
"""JAX with its default preallocation (75 % of what it sees as the card)."""
import json

import jax
import jax.numpy as jnp
import pynvml

x = jnp.ones((2048, 2048))
y = (x @ x).block_until_ready()
stats = jax.devices()[0].memory_stats() or {}
pynvml.nvmlInit()
memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print(json.dumps(dict(total=memory.total, nvml_used=memory.used, bytes_limit=stats.get("bytes_limit"),
                      right=bool((y == 2048).all()))))
