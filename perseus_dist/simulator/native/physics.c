/* One GPU: which clock it runs at, what it draws, how far its running operation is. */
#include "machine.h"

#include <math.h>
#include <string.h>

static uint32_t index_at_most(const struct sim_preset *preset, uint32_t clock_mhz) {
  uint32_t index = 0;
  while (index + 1 < preset->num_clocks && preset->clocks_mhz[index] > clock_mhz) index++;
  return index;
}

uint32_t sim_snap_mhz(const struct sim_preset *preset, uint32_t clock_mhz) {
  return preset->clocks_mhz[index_at_most(preset, clock_mhz)];
}

static const struct sim_op *running_op(const struct sim_gpu *gpu) {
  return &gpu->queue[gpu->num_completed % SIM_QUEUE_SIZE];
}

static void apply_clock(struct sim_gpu *gpu) {
  const struct sim_preset *preset = &gpu->preset;
  uint32_t index = 0;
  uint64_t reasons = gpu->forced_reasons;
  if (gpu->load == SIM_IDLE) {
    reasons |= SIM_REASON_IDLE;
    index = preset->num_clocks - 1;
    if (gpu->lock_hi_mhz) index = index_at_most(preset, gpu->lock_lo_mhz);
  } else if (gpu->lock_hi_mhz) {
    index = index_at_most(preset, gpu->lock_hi_mhz);
  }
  if (index > 0 && gpu->lock_hi_mhz) reasons |= SIM_REASON_USER_CLOCKS;
  if (gpu->thermal_cap_mhz && preset->clocks_mhz[index] > gpu->thermal_cap_mhz) {
    index = index_at_most(preset, gpu->thermal_cap_mhz);
    reasons = (reasons & ~(uint64_t)SIM_REASON_USER_CLOCKS) | SIM_REASON_THERMAL;
  }
  gpu->clock_index = index;
  gpu->reasons = reasons;
}

/* The regulator of a power cap hops between two neighbouring clocks so that the mean power is the regulated share of
 * the limit. Time and power of the operation are the means over the hops. */
static void apply_kernel(struct sim_gpu *gpu, const struct sim_class *class, double duration_ns) {
  const struct sim_preset *preset = &gpu->preset;
  double regulated_mw = preset->regulated_share * gpu->power_limit_mw;
  uint32_t slow = gpu->clock_index;
  while (slow + 1 < preset->num_clocks && class->power_mw[slow] > regulated_mw) slow++;
  double power_mw = class->power_mw[slow], rate = 1.0 / class->relative_time[slow];
  if (slow != gpu->clock_index) {
    double fast_mw = class->power_mw[slow - 1];
    double share = power_mw < regulated_mw ? (regulated_mw - power_mw) / (fast_mw - power_mw) : 0.0;
    power_mw += share * (fast_mw - power_mw);
    rate += share * (1.0 / class->relative_time[slow - 1] - rate);
    gpu->clock_index = slow;
    gpu->reasons = (gpu->reasons & ~(uint64_t)SIM_REASON_USER_CLOCKS) | SIM_REASON_POWER_CAP;
  }
  gpu->power_mw = power_mw;
  gpu->op_duration_ns = duration_ns / rate;
}

void sim_refresh(struct sim_gpu *gpu, uint64_t time_ns) {
  sim_integrate(gpu, time_ns);
  if (gpu->is_pending && gpu->pending_at_ns <= time_ns) {
    gpu->lock_lo_mhz = gpu->pending_lo_mhz;
    gpu->lock_hi_mhz = gpu->pending_hi_mhz;
    gpu->is_pending = 0;
  }
  if (gpu->num_completed != gpu->num_enqueued) {
    gpu->load = gpu->is_started && running_op(gpu)->kind == SIM_OP_KERNEL ? SIM_RUNNING : SIM_BLOCKED;
    gpu->idle_at_ns = SIM_NEVER;
  } else {
    gpu->load = time_ns < gpu->idle_at_ns ? SIM_BLOCKED : SIM_IDLE;
  }
  apply_clock(gpu);
  gpu->op_end_ns = SIM_NEVER;
  if (gpu->load == SIM_RUNNING) {
    apply_kernel(gpu, &gpu->preset.classes[running_op(gpu)->target], running_op(gpu)->duration_ns);
  } else {
    gpu->power_mw = gpu->load == SIM_IDLE ? gpu->preset.idle_power_mw : gpu->preset.blocking_power_mw[gpu->clock_index];
    if (gpu->is_started) gpu->op_duration_ns = running_op(gpu)->duration_ns;
  }
  if (gpu->is_started) gpu->op_end_ns = time_ns + (uint64_t)llround(gpu->op_left * gpu->op_duration_ns);
}

double sim_energy_at(const struct sim_gpu *gpu, uint64_t time_ns) {
  return gpu->energy_mj + gpu->power_mw * (double)(time_ns - gpu->since_ns) * 1e-9;
}

double sim_published_at(const struct sim_gpu *gpu, uint64_t time_ns) {
  uint64_t period_ns = gpu->preset.energy_period_us * UINT64_C(1000);
  if (period_ns == 0) return sim_energy_at(gpu, time_ns);
  uint64_t phase_ns = (uint64_t)(gpu->energy_phase * (double)period_ns);
  uint64_t edge_ns = time_ns - (time_ns + phase_ns) % period_ns;
  return edge_ns >= gpu->since_ns ? sim_energy_at(gpu, edge_ns) : gpu->published_mj;
}

uint64_t sim_counter_mj(const struct sim_gpu *gpu, uint64_t time_ns) {
  return (uint64_t)(sim_published_at(gpu, time_ns) - gpu->counted_from_mj);
}

void sim_keep_readings(struct sim_gpu *gpu, uint64_t time_ns) {
  uint64_t period_ns = gpu->preset.energy_period_us * UINT64_C(1000);
  if (gpu->kept_until_ns == 0 || period_ns == 0) return;
  uint64_t phase_ns = (uint64_t)(gpu->energy_phase * (double)period_ns);
  for (;;) {
    uint64_t edge_ns = gpu->kept_until_ns + period_ns - (gpu->kept_until_ns + phase_ns) % period_ns;
    if (edge_ns > time_ns) break;
    uint64_t energy_mj = (uint64_t)(sim_energy_at(gpu, edge_ns) - gpu->counted_from_mj);
    gpu->readings[gpu->num_readings++ % SIM_NUM_READINGS] = (struct sim_reading){edge_ns, energy_mj};
    gpu->kept_until_ns = edge_ns;
  }
  if (gpu->num_readings - gpu->num_readings_taken > SIM_NUM_READINGS)
    gpu->num_readings_taken = gpu->num_readings - SIM_NUM_READINGS;
}

double sim_average_power_at(const struct sim_gpu *gpu, uint64_t time_ns) {
  if (gpu->preset.power_average_us == 0) return gpu->power_mw;
  double elapsed = (double)(time_ns - gpu->since_ns) / (gpu->preset.power_average_us * 1e3);
  return gpu->power_mw + (gpu->average_mw - gpu->power_mw) * exp(-elapsed);
}

void sim_integrate(struct sim_gpu *gpu, uint64_t time_ns) {
  if (time_ns <= gpu->since_ns) return;
  double elapsed_ns = (double)(time_ns - gpu->since_ns);
  if (gpu->kept_until_ns) sim_keep_readings(gpu, time_ns);
  gpu->published_mj = sim_published_at(gpu, time_ns);
  gpu->average_mw = sim_average_power_at(gpu, time_ns);
  gpu->energy_mj = sim_energy_at(gpu, time_ns);
  if (gpu->load == SIM_RUNNING) gpu->running_ns += elapsed_ns;
  for (int bit = 0; bit < 8; bit++)
    if (gpu->reasons >> bit & 1) gpu->reason_ns[bit] += elapsed_ns;
  if (gpu->is_started) gpu->op_left = fmax(0.0, gpu->op_left - elapsed_ns / gpu->op_duration_ns);
  gpu->since_ns = time_ns;
}

uint64_t sim_next_event_ns(const struct sim_gpu *gpu) {
  uint64_t next_ns = gpu->is_started ? gpu->op_end_ns : SIM_NEVER;
  if (gpu->is_pending && gpu->pending_at_ns < next_ns) next_ns = gpu->pending_at_ns;
  if (gpu->load == SIM_BLOCKED && gpu->idle_at_ns < next_ns) next_ns = gpu->idle_at_ns;
  if (gpu->num_arrived != gpu->num_sent) {
    uint64_t arrives_ns = gpu->in_flight[gpu->num_arrived % SIM_NUM_IN_FLIGHT].at_ns;
    if (arrives_ns < next_ns) next_ns = arrives_ns;
  }
  return next_ns;
}

uint64_t sim_call_latency_us(struct sim_machine *machine, const struct sim_gpu *gpu) {
  machine->random ^= machine->random << 13; /* xorshift64 */
  machine->random ^= machine->random >> 7;
  machine->random ^= machine->random << 17;
  return gpu->preset.call_latency_us + machine->random % (gpu->preset.call_jitter_us + UINT64_C(1));
}

void sim_request_lock(struct sim_machine *machine, struct sim_gpu *gpu, uint32_t lo_mhz, uint32_t hi_mhz,
                      uint64_t delay_us) {
  uint64_t now_ns = machine->sim_ns;
  gpu->is_pending = 0; /* a newer request replaces one on its way */
  gpu->pending_lo_mhz = hi_mhz ? sim_snap_mhz(&gpu->preset, lo_mhz) : 0;
  gpu->pending_hi_mhz = hi_mhz ? sim_snap_mhz(&gpu->preset, hi_mhz) : 0;
  uint32_t settle_us = gpu->preset.release_us;
  for (uint32_t index = 0; hi_mhz && index < gpu->preset.num_clocks; index++)
    if (gpu->preset.clocks_mhz[index] == gpu->pending_hi_mhz) settle_us = gpu->preset.settle_us[index];
  gpu->pending_at_ns = now_ns + (delay_us + settle_us) * 1000u;
  gpu->is_pending = 1;
  if (hi_mhz)
    gpu->num_sets++;
  else
    gpu->num_resets++;
  sim_refresh(gpu, now_ns);
  sim_note_progress(machine, gpu);
}
