/* CUDA events: points of a stream, and when the device reached them. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <unistd.h>

int sim_new_timestamp(struct sim_machine *machine, uint32_t index) {
  struct sim_gpu *gpu = &machine->gpus[index];
  for (int pass = 0; pass < 2; pass++) /* what dead processes have left is taken only if nothing else is free */
    for (uint32_t step = 0; step < SIM_NUM_TIMESTAMPS; step++) {
      uint32_t slot = (gpu->next_timestamp + step) % SIM_NUM_TIMESTAMPS;
      struct sim_timestamp *timestamp = &gpu->timestamps[slot];
      if (timestamp->owner_pid && (pass == 0 || sim_is_alive(timestamp->owner_pid))) continue;
      timestamp->recorded = 0;
      timestamp->owner_pid = (uint32_t)getpid();
      gpu->next_timestamp = slot + 1;
      return (int)slot;
    }
  return -1;
}

int sim_record_timestamp(struct sim_machine *machine, uint32_t index, uint32_t slot) {
  struct sim_timestamp *timestamp = &machine->gpus[index].timestamps[slot];
  if (++timestamp->num_records == 0) timestamp->num_records = 1;
  timestamp->recorded = timestamp->num_records;
  return sim_enqueue(machine, index,
                     (struct sim_op){.kind = SIM_OP_TIMESTAMP, .target = slot, .value = timestamp->recorded});
}

void sim_reach_timestamp(struct sim_gpu *gpu, const struct sim_op *op, uint64_t time_ns) {
  struct sim_timestamp *timestamp = &gpu->timestamps[op->target];
  if (timestamp->recorded != (uint32_t)op->value) return; /* freed, or recorded again */
  timestamp->time_ns = time_ns;
  timestamp->reached = timestamp->recorded;
}

int sim_timestamp_ns(const struct sim_machine *machine, uint32_t index, uint32_t slot, uint64_t *time_ns) {
  const struct sim_timestamp *timestamp = &machine->gpus[index].timestamps[slot];
  if (timestamp->recorded == 0) return EINVAL;
  if (timestamp->reached != timestamp->recorded) return EAGAIN;
  *time_ns = timestamp->time_ns;
  return 0;
}

void sim_free_timestamp(struct sim_machine *machine, uint32_t index, uint32_t slot) {
  machine->gpus[index].timestamps[slot].recorded = 0;
  machine->gpus[index].timestamps[slot].owner_pid = 0;
}
