/* What the Python package calls to use streams. Results are 0 or an errno. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <string.h>

SIM_EXPORT int perseus_sim_find_class(const struct sim_machine *machine, uint32_t gpu, const char *name) {
  const struct sim_preset *preset = &machine->gpus[gpu].preset;
  for (uint32_t index = 0; index < preset->num_classes; index++)
    if (strcmp(preset->classes[index].name, name) == 0) return (int)index;
  return -1;
}

SIM_EXPORT void perseus_sim_open_stream(struct sim_machine *machine, uint32_t gpu) {
  sim_lock(machine);
  sim_open_stream(machine, gpu);
  sim_unlock(machine);
}

/* Open the stream unless another process has it: 0, or that process. */
SIM_EXPORT uint32_t perseus_sim_claim_stream(struct sim_machine *machine, uint32_t gpu) {
  sim_lock(machine);
  uint32_t user_pid = sim_stream_user(machine, gpu);
  if (!user_pid) sim_open_stream(machine, gpu);
  sim_unlock(machine);
  return user_pid;
}

SIM_EXPORT int perseus_sim_enqueue(struct sim_machine *machine, uint32_t gpu, uint32_t kind, uint32_t target,
                                   uint64_t value, double duration_s) {
  if ((kind == SIM_OP_SIGNAL || kind == SIM_OP_WAIT) && target >= SIM_NUM_SEMAPHORES) return EINVAL;
  sim_lock(machine);
  int result = sim_enqueue(
      machine, gpu, (struct sim_op){.kind = kind, .target = target, .value = value, .duration_ns = duration_s * 1e9});
  sim_unlock(machine);
  return result;
}

/* All of them or none: EAGAIN where the queue has no room. */
SIM_EXPORT int perseus_sim_enqueue_all(struct sim_machine *machine, uint32_t gpu, const struct sim_op *ops,
                                       uint32_t count) {
  for (uint32_t index = 0; index < count; index++)
    if ((ops[index].kind == SIM_OP_SIGNAL || ops[index].kind == SIM_OP_WAIT) && ops[index].target >= SIM_NUM_SEMAPHORES)
      return EINVAL;
  sim_lock(machine);
  uint64_t num_queued = machine->gpus[gpu].num_enqueued - machine->gpus[gpu].num_completed;
  int result = num_queued + count > SIM_QUEUE_SIZE ? EAGAIN : 0;
  for (uint32_t index = 0; !result && index < count; index++) result = sim_enqueue(machine, gpu, ops[index]);
  sim_unlock(machine);
  return result;
}

SIM_EXPORT uint32_t perseus_sim_take_marks(struct sim_machine *machine, uint32_t gpu, uint64_t *times_ns,
                                           uint32_t capacity) {
  sim_lock(machine);
  uint32_t count = sim_take_marks(machine, gpu, times_ns, capacity);
  sim_unlock(machine);
  return count;
}

/* What is left of the work of trainers that are gone ends, and semaphores count from 0 again. */
SIM_EXPORT void perseus_sim_drop_work(struct sim_machine *machine) {
  sim_lock(machine);
  for (uint32_t gpu = 0; gpu < machine->num_gpus; gpu++) {
    sim_drop_queue(machine, &machine->gpus[gpu]);
    machine->gpus[gpu].num_marks_taken = machine->gpus[gpu].num_marks;
  }
  machine->marked_gpus = 0;
  memset(machine->semaphores, 0, sizeof machine->semaphores);
  sim_unlock(machine);
}

SIM_EXPORT uint64_t perseus_sim_num_enqueued(struct sim_machine *machine, uint32_t gpu) {
  return machine->gpus[gpu].num_enqueued;
}

SIM_EXPORT int perseus_sim_wait(struct sim_machine *machine, uint32_t gpu, uint64_t num_completed,
                                uint64_t timeout_ns) {
  return sim_wait(machine, gpu, num_completed, timeout_ns);
}

/* A number that is another one later, if anything has happened on any stream until then or still runs. */
SIM_EXPORT uint64_t perseus_sim_progress(struct sim_machine *machine) {
  sim_lock(machine);
  uint64_t progress = 0;
  bool is_busy = false;
  for (uint32_t index = 0; index < machine->num_gpus; index++) {
    const struct sim_gpu *gpu = &machine->gpus[index];
    progress += gpu->num_enqueued + gpu->num_completed + gpu->num_arrived;
    is_busy |= gpu->is_started || gpu->num_arrived != gpu->num_sent;
  }
  if (is_busy) progress += machine->sim_ns;
  sim_unlock(machine);
  return progress;
}

/* Whether the stream waits for a semaphore; if so, for which one, and its value and the one that is waited for. */
SIM_EXPORT uint32_t perseus_sim_awaited(struct sim_machine *machine, uint32_t index, uint32_t *semaphore,
                                        uint64_t *value, uint64_t *awaited) {
  sim_lock(machine);
  const struct sim_gpu *gpu = &machine->gpus[index];
  const struct sim_op *op = &gpu->queue[gpu->num_completed % SIM_QUEUE_SIZE];
  bool waits = gpu->num_completed != gpu->num_enqueued && op->kind == SIM_OP_WAIT;
  if (waits) {
    *semaphore = op->target;
    *value = machine->semaphores[op->target];
    *awaited = op->value;
  }
  sim_unlock(machine);
  return waits;
}

SIM_EXPORT int perseus_sim_new_timestamp(struct sim_machine *machine, uint32_t gpu) {
  sim_lock(machine);
  int slot = sim_new_timestamp(machine, gpu);
  sim_unlock(machine);
  return slot;
}

SIM_EXPORT int perseus_sim_record_timestamp(struct sim_machine *machine, uint32_t gpu, uint32_t slot) {
  sim_lock(machine);
  int result = sim_record_timestamp(machine, gpu, slot);
  sim_unlock(machine);
  return result;
}

SIM_EXPORT int perseus_sim_timestamp_ns(struct sim_machine *machine, uint32_t gpu, uint32_t slot, uint64_t *time_ns) {
  sim_lock(machine);
  int result = sim_timestamp_ns(machine, gpu, slot, time_ns);
  sim_unlock(machine);
  return result;
}

SIM_EXPORT void perseus_sim_free_timestamp(struct sim_machine *machine, uint32_t gpu, uint32_t slot) {
  sim_lock(machine);
  sim_free_timestamp(machine, gpu, slot);
  sim_unlock(machine);
}

SIM_EXPORT uint64_t perseus_sim_semaphore(struct sim_machine *machine, uint32_t index) {
  sim_lock(machine);
  uint64_t value = machine->semaphores[index];
  sim_unlock(machine);
  return value;
}

SIM_EXPORT int perseus_sim_raise(struct sim_machine *machine, uint32_t index, uint64_t value) {
  if (index >= SIM_NUM_SEMAPHORES) return EINVAL;
  sim_lock(machine);
  sim_raise(machine, index, value);
  sim_unlock(machine);
  return 0;
}
