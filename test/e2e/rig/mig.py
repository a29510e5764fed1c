# SPDX-License-Identifier: Apache-2.0
"""The simulated H100 beside the plugin, divided past it as an administrator would: what nvidia-smi mig does."""
import json
import subprocess
import sys

from rig.programs import wait_for

ONE, WHOLE = 9984, 80896  # MiB of the instances 1g.10gb and 7g.80gb

# Switch MIG on, make an instance 1g.10gb at a slice (with a compute instance: `part`), remove those at a slice, list
# all of the GPU.
DIVIDE = """
import ctypes, json, sys
nvml, verb, slice = ctypes.CDLL(sys.argv[1]), sys.argv[2], int(sys.argv[3])
gpu, one, status = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))
if verb == "on":
    assert nvml.nvmlDeviceSetMigMode(gpu, 1, ctypes.byref(status)) == 0
if verb in ("make", "part"):
    place = (ctypes.c_uint * 2)(slice, 1)
    assert nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 19, place, ctypes.byref(one)) == 0
if verb == "part":
    assert nvml.nvmlGpuInstanceCreateComputeInstance(one, 0, ctypes.byref(ctypes.c_void_p())) == 0
found = []
for number in range(64):
    if nvml.nvmlDeviceGetGpuInstanceById(gpu, number, ctypes.byref(one)) != 0:
        continue
    info = (ctypes.c_uint * 8)()  # device (two words), id, profile, start, size
    assert nvml.nvmlGpuInstanceGetInfo(one, info) == 0
    found.append((info[4], info[5]))
    if verb == "remove" and info[4] == slice:
        assert nvml.nvmlGpuInstanceDestroy(one) == 0
print(json.dumps(sorted(found)))
"""


class Machine:
    def __init__(self, agents, gpus="1xH100"):
        """Takes the place of the usual machine; the plugin has to be stopped."""
        self.agents, self.usual = agents, (agents.plugin.env, agents.machine)
        agents.machine = agents.folder / f"mig-{len(list(agents.folder.iterdir()))}"
        agents.machine.mkdir()
        agents.plugin.env = agents.plugin.env | {"SIMGPU": gpus, "SIMGPU_STATE": str(agents.machine / "state")}

    def give_back(self):
        """The usual machine again, for the plugin that starts next."""
        self.agents.plugin.env, self.agents.machine = self.usual

    def divide(self, verb, first=0):
        """Past the plugin. (first slice, slices) of each instance of the first GPU."""
        library = self.agents.build / "simgpu/libnvidia-ml.so.1"
        command = [sys.executable, "-c", DIVIDE, library, verb, str(first)]
        done = subprocess.run(command, env=self.agents.plugin.env, check=True, capture_output=True, text=True)
        return [tuple(place) for place in json.loads(done.stdout)]

    def instances(self):
        return self.divide("list")

    def undivided(self):
        wait_for("every instance to be gone", lambda: not self.instances(), 30)
