/* NVML: clocks, locks, and why a clock is what it is. */
#define _GNU_SOURCE
#include "session.h"

static nvmlReturn_t give_list(const uint32_t *values, unsigned int length, unsigned int *count, unsigned int *target) {
  NEED(count);
  unsigned int capacity = target ? *count : 0;
  *count = length;
  if (capacity < length) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned int position = 0; position < length; position++) target[position] = values[position];
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                           unsigned int *clocks_mhz) {
  ENTER(device);
  return give_list(call.gpu->preset.memory_clocks_mhz, call.gpu->preset.num_memory_clocks, count, clocks_mhz);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memory_mhz,
                                                             unsigned int *count, unsigned int *clocks_mhz) {
  ENTER(device);
  const struct sim_preset *preset = &call.gpu->preset;
  for (uint32_t position = 0; position < preset->num_memory_clocks; position++)
    if (preset->memory_clocks_mhz[position] == memory_mhz)
      return give_list(preset->clocks_mhz, preset->num_clocks, count, clocks_mhz);
  return NVML_ERROR_NOT_FOUND;
}

/* Both calls that change the lock: 0, 0 resets it. A process that is killed while it waits leaves the lock as it was.
 */
static nvmlReturn_t change_lock(const char *function, struct nvml_call *call, unsigned int lo_mhz,
                                unsigned int hi_mhz) {
  struct sim_machine *machine = call->machine;
  const struct sim_preset *preset = &call->gpu->preset;
  nvmlReturn_t result = NVML_SUCCESS;
  if (hi_mhz &&
      (lo_mhz > hi_mhz || hi_mhz < preset->clocks_mhz[preset->num_clocks - 1] || lo_mhz > preset->clocks_mhz[0]))
    result = NVML_ERROR_INVALID_ARGUMENT;
  if (!nvml_may_set(machine)) result = NVML_ERROR_NO_PERMISSION;
  sim_lock(machine);
  uint64_t latency_us = sim_call_latency_us(machine, call->gpu);
  sim_unlock(machine);
  if (result == NVML_SUCCESS && !machine->is_virtual) {
    sim_sleep_us(latency_us);
    latency_us = 0;
  }
  sim_lock(machine);
  if (result == NVML_SUCCESS) {
    uint64_t delay_us = machine->is_virtual ? latency_us + call->delay_us : 0;
    sim_request_lock(machine, call->gpu, lo_mhz, hi_mhz, delay_us);
  }
  sim_log_call(machine, function, call->index, lo_mhz, hi_mhz, (int)result);
  sim_unlock(machine);
  return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int lo_mhz, unsigned int hi_mhz) {
  ENTER(device);
  if (hi_mhz == 0) return NVML_ERROR_INVALID_ARGUMENT;
  return change_lock(__func__, &call, lo_mhz, hi_mhz);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
  ENTER(device);
  return change_lock(__func__, &call, 0, 0);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock_mhz) {
  ENTER(device);
  NEED(clock_mhz);
  const struct sim_preset *preset = &call.gpu->preset;
  sim_lock(call.machine);
  *clock_mhz = type == NVML_CLOCK_MEM ? preset->memory_clocks_mhz[0] : preset->clocks_mhz[call.gpu->clock_index];
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock_mhz) {
  ENTER(device);
  NEED(clock_mhz);
  *clock_mhz = type == NVML_CLOCK_MEM ? call.gpu->preset.memory_clocks_mhz[0] : call.gpu->preset.clocks_mhz[0];
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t type, nvmlClockId_t id,
                                           unsigned int *clock_mhz) {
  return id == NVML_CLOCK_ID_CURRENT ? nvmlDeviceGetClockInfo(device, type, clock_mhz)
                                     : nvmlDeviceGetMaxClockInfo(device, type, clock_mhz);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
  ENTER(device);
  NEED(reasons);
  sim_lock(call.machine);
  *reasons = call.gpu->reasons;
  sim_unlock(call.machine);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
  ENTER(device);
  NEED(reasons);
  *reasons = 0x1ff;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(device, reasons);
}
