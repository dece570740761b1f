/* NVML: what a device is, and who uses it. */
#define _GNU_SOURCE
#include "session.h"

SIM_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  ENTER(device);
  NEED(index);
  *index = call.index;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *number) {
  ENTER(device);
  NEED(number);
  *number = call.index;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int size) {
  ENTER(device);
  return nvml_copy_text(call.gpu->preset.name, name, size);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
  ENTER(device);
  NEED(architecture);
  *architecture = call.gpu->preset.architecture;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
  ENTER(device);
  NEED(major && minor);
  *major = (int)call.gpu->preset.compute_major;
  *minor = (int)call.gpu->preset.compute_minor;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  ENTER(device);
  NEED(memory);
  memory->total = (unsigned long long)call.gpu->preset.memory_mib << 20;
  memory->used = memory->total / 2;
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
  ENTER(device);
  NEED(utilization);
  sim_lock(call.machine);
  utilization->gpu = call.gpu->load == SIM_IDLE ? 0 : 100; /* a kernel that waits for a peer is busy in NVML's eyes */
  utilization->memory = call.gpu->load == SIM_RUNNING ? 50 : 0;
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *state) {
  ENTER(device);
  NEED(state);
  *state = NVML_PSTATE_0;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
  ENTER(device);
  NEED(mode);
  *mode = call.gpu->is_persistent ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                nvmlProcessInfo_t *processes) {
  ENTER(device);
  NEED(count);
  unsigned int capacity = processes ? *count : 0, num_alive = 0;
  sim_lock(call.machine);
  for (uint32_t entry = 0; entry < SIM_MAX_PROCESSES; entry++) {
    uint32_t pid = call.gpu->process_pids[entry];
    if (pid == 0 || !sim_is_alive(pid)) continue;
    if (num_alive < capacity) processes[num_alive] = (nvmlProcessInfo_t){pid, 1ull << 30, 0xffffffff, 0xffffffff};
    num_alive++;
  }
  sim_unlock(call.machine);
  *count = num_alive;
  return num_alive > capacity ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_t *processes) {
  ENTER(device);
  NEED(count);
  (void)processes;
  *count = 0;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                   nvmlProcessInfo_t *processes) {
  return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, processes);
}
