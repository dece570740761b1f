#define _GNU_SOURCE
#include "machine.h"

#include <fnmatch.h>
#include <string.h>
#include <unistd.h>

/* The result that the first matching fault wants (0: none). Delays of all matching faults add up. gpu < 0: a call that
 * concerns no single GPU. */
int sim_fault(struct sim_machine *machine, const char *function, int gpu, uint64_t *delay_us, bool *is_ignored) {
  for (int index = 0; index < SIM_NUM_FAULTS; index++) {
    struct sim_fault *fault = &machine->faults[index];
    if (!fault->function[0] || fault->num_left == 0 || fnmatch(fault->function, function, 0) != 0) continue;
    if (gpu >= 0 && !(fault->gpu_mask >> gpu & 1)) continue;
    if (fault->num_skipped > 0) {
      fault->num_skipped--;
      continue;
    }
    if (fault->num_left > 0) fault->num_left--;
    *delay_us += fault->delay_us;
    *is_ignored |= fault->is_ignored != 0;
    if (fault->result != 0) return fault->result;
  }
  return 0;
}

void sim_log_call(struct sim_machine *machine, const char *function, uint32_t gpu, uint32_t lo, uint32_t hi,
                  int result) {
  struct sim_call *call = &machine->calls[machine->num_calls % SIM_NUM_CALLS];
  *call = (struct sim_call){
      .time_ns = machine->sim_ns, .pid = (uint32_t)getpid(), .gpu = gpu, .lo = lo, .hi = hi, .result = result};
  strncpy(call->function, function, sizeof call->function - 1);
  machine->num_calls++;
}
