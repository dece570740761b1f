/* What the Python package calls to see and set the state of GPUs, as tests do. Results are 0 or an errno. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <string.h>

SIM_EXPORT void perseus_sim_gpu_state(struct sim_machine *machine, uint32_t index, struct sim_gpu_state *state) {
  sim_lock(machine);
  struct sim_gpu *gpu = &machine->gpus[index];
  uint64_t now_ns = machine->sim_ns;
  double running_ns = gpu->running_ns + (gpu->load == SIM_RUNNING ? (double)(now_ns - gpu->since_ns) : 0.0);
  *state = (struct sim_gpu_state){
      .lock_lo_mhz = gpu->lock_lo_mhz,
      .lock_hi_mhz = gpu->lock_hi_mhz,
      .is_pending = gpu->is_pending,
      .clock_mhz = gpu->preset.clocks_mhz[gpu->clock_index],
      .load = gpu->load,
      .power_limit_mw = gpu->power_limit_mw,
      .power_mw = (uint32_t)gpu->power_mw,
      .temperature_c = gpu->temperature_c,
      .reasons = gpu->reasons,
      .num_sets = gpu->num_sets,
      .num_resets = gpu->num_resets,
      .num_enqueued = gpu->num_enqueued,
      .num_completed = gpu->num_completed,
      .time_ns = now_ns,
      .energy_counter_mj = sim_counter_mj(gpu, now_ns),
      .pending_at_ns = gpu->is_pending ? gpu->pending_at_ns : 0,
      .power_w = gpu->power_mw * 1e-3,
      .true_energy_j = sim_energy_at(gpu, now_ns) * 1e-3,
      .running_s = running_ns * 1e-9,
  };
  sim_unlock(machine);
}

/* Begin, or end, to keep what the energy counter publishes from now on. Returns the counter. */
SIM_EXPORT uint64_t perseus_sim_keep_readings(struct sim_machine *machine, uint32_t index, uint32_t is_on) {
  sim_lock(machine);
  struct sim_gpu *gpu = &machine->gpus[index];
  gpu->kept_until_ns = is_on ? machine->sim_ns : 0;
  gpu->num_readings_taken = gpu->num_readings;
  uint64_t energy_mj = sim_counter_mj(gpu, machine->sim_ns);
  sim_unlock(machine);
  return energy_mj;
}

/* What was kept since the last call, oldest first, as many as fit. */
SIM_EXPORT uint32_t perseus_sim_take_readings(struct sim_machine *machine, uint32_t index, struct sim_reading *readings,
                                              uint32_t capacity) {
  sim_lock(machine);
  struct sim_gpu *gpu = &machine->gpus[index];
  sim_keep_readings(gpu, machine->sim_ns);
  uint32_t count = 0;
  while (count < capacity && gpu->num_readings_taken != gpu->num_readings)
    readings[count++] = gpu->readings[gpu->num_readings_taken++ % SIM_NUM_READINGS];
  sim_unlock(machine);
  return count;
}

/* The exact energy of all GPUs together. */
SIM_EXPORT double perseus_sim_true_energy_j(struct sim_machine *machine) {
  double energy_mj = 0.0;
  sim_lock(machine);
  for (uint32_t index = 0; index < machine->num_gpus; index++)
    energy_mj += sim_energy_at(&machine->gpus[index], machine->sim_ns);
  sim_unlock(machine);
  return energy_mj * 1e-3;
}

SIM_EXPORT const char *perseus_sim_uuid(const struct sim_machine *machine, uint32_t gpu) {
  return machine->gpus[gpu].uuid;
}

/* What nvmlDeviceSetGpuLockedClocks does, without its waiting; 0, 0 = reset. */
SIM_EXPORT void perseus_sim_request_lock(struct sim_machine *machine, uint32_t index, uint32_t lo_mhz,
                                         uint32_t hi_mhz) {
  sim_lock(machine);
  struct sim_gpu *gpu = &machine->gpus[index];
  sim_request_lock(machine, gpu, lo_mhz, hi_mhz, sim_call_latency_us(machine, gpu));
  sim_log_call(machine, hi_mhz ? "request" : "release", index, lo_mhz, hi_mhz, 0);
  sim_unlock(machine);
}

enum sim_setting {
  SET_THERMAL_CAP,
  SET_TEMPERATURE,
  SET_REASONS,
  SET_POWER_LIMIT,
  SET_MIG,
  SET_LOST,
  SET_ADD_PROCESS,
  SET_REMOVE_PROCESS,
  SET_HAS_POWER_PROFILES,
  SET_REQUESTED_PROFILES,
  SET_ENFORCED_PROFILES
};

static int replace_process(struct sim_gpu *gpu, uint32_t old_pid, uint32_t new_pid) {
  for (uint32_t entry = 0; entry < SIM_MAX_PROCESSES; entry++)
    if (gpu->process_pids[entry] == old_pid) {
      gpu->process_pids[entry] = new_pid;
      return 0;
    }
  return ENOENT;
}

SIM_EXPORT int perseus_sim_set(struct sim_machine *machine, uint32_t index, uint32_t setting, uint64_t value) {
  sim_lock(machine);
  struct sim_gpu *gpu = &machine->gpus[index];
  int result = 0;
  switch ((enum sim_setting)setting) {
    case SET_THERMAL_CAP: gpu->thermal_cap_mhz = (uint32_t)value; break;
    case SET_TEMPERATURE: gpu->temperature_c = (uint32_t)value; break;
    case SET_REASONS: gpu->forced_reasons = value; break;
    case SET_POWER_LIMIT: gpu->power_limit_mw = (uint32_t)value; break;
    case SET_MIG: gpu->is_mig = value != 0; break;
    case SET_LOST: gpu->is_lost = value != 0; break;
    case SET_ADD_PROCESS: result = replace_process(gpu, 0, (uint32_t)value); break;
    case SET_REMOVE_PROCESS: result = replace_process(gpu, (uint32_t)value, 0); break;
    case SET_HAS_POWER_PROFILES: gpu->has_power_profiles = value != 0; break;
    case SET_REQUESTED_PROFILES: gpu->requested_profiles = value; break;
    case SET_ENFORCED_PROFILES: gpu->enforced_profiles = value; break;
    default: result = EINVAL;
  }
  sim_refresh(gpu, machine->sim_ns);
  sim_note_progress(machine, gpu);
  sim_unlock(machine);
  return result;
}

/* A driver that is unloaded and loaded again forgets locks, limits and joules, and sessions opened before are void. */
SIM_EXPORT void perseus_sim_set_driver(struct sim_machine *machine, uint32_t is_loaded) {
  sim_lock(machine);
  machine->is_driver_loaded = is_loaded;
  machine->driver_generation++;
  for (uint32_t index = 0; index < machine->num_gpus; index++) {
    struct sim_gpu *gpu = &machine->gpus[index];
    sim_integrate(gpu, machine->sim_ns);
    gpu->counted_from_mj = gpu->published_mj = gpu->energy_mj;
    gpu->lock_lo_mhz = gpu->lock_hi_mhz = gpu->is_pending = 0;
    gpu->power_limit_mw = gpu->preset.default_power_limit_mw;
    sim_refresh(gpu, machine->sim_ns);
  }
  sim_unlock(machine);
}

SIM_EXPORT int perseus_sim_inject(struct sim_machine *machine, const struct sim_fault *fault) {
  int result = ENOSPC;
  sim_lock(machine);
  for (int index = 0; result && index < SIM_NUM_FAULTS; index++)
    if (!machine->faults[index].function[0] || machine->faults[index].num_left == 0) {
      machine->faults[index] = *fault;
      result = 0;
    }
  sim_unlock(machine);
  return result;
}

SIM_EXPORT void perseus_sim_clear_faults(struct sim_machine *machine) {
  sim_lock(machine);
  memset(machine->faults, 0, sizeof machine->faults);
  sim_unlock(machine);
}

/* Calls from number `first` on, as many as fit; *first becomes the number of the first one returned. */
SIM_EXPORT uint64_t perseus_sim_calls(struct sim_machine *machine, uint64_t *first, struct sim_call *calls,
                                      uint64_t capacity) {
  sim_lock(machine);
  uint64_t end = machine->num_calls, count = 0;
  if (end > SIM_NUM_CALLS && *first < end - SIM_NUM_CALLS) *first = end - SIM_NUM_CALLS;
  for (uint64_t number = *first; number < end && count < capacity; number++)
    calls[count++] = machine->calls[number % SIM_NUM_CALLS];
  sim_unlock(machine);
  return count;
}
