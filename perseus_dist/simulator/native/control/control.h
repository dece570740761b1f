/* Structures that the Python package shares with perseus_sim_*, besides those of machine.h. */
#ifndef PERSEUS_SIM_CONTROL_H
#define PERSEUS_SIM_CONTROL_H

#include "machine.h"

/* What perseus_sim_gpu_state tells. */
struct sim_gpu_state {
  uint32_t lock_lo_mhz, lock_hi_mhz, is_pending, clock_mhz, load, power_limit_mw, power_mw, temperature_c;
  uint64_t reasons, num_sets, num_resets, num_enqueued, num_completed, time_ns, energy_counter_mj, pending_at_ns;
  double power_w, true_energy_j, running_s;
};

#endif
