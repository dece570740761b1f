/* The compute streams: a queue per GPU, semaphores between them, and the order of all events. */
#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

static const uint64_t idle_after_ns = 50 * 1000000u;
static const uint64_t longest_wait_ns = 200 * 1000000u;

static void push_write(struct sim_machine *machine, const struct sim_op *op) {
  struct sim_write *write = &machine->writes[machine->num_writes % SIM_NUM_WRITES];
  *write = (struct sim_write){op->target, (uint32_t)(op->value >> 32), (uint32_t)op->value, 0, op->offset};
  machine->num_writes++;
  /* Nobody delivers: the oldest are lost, and the device goes on. */
  if (machine->num_writes - machine->num_delivered > SIM_NUM_WRITES)
    machine->num_delivered = machine->num_writes - SIM_NUM_WRITES;
}

/* Let signals arrive whose time has come. Returns whether there were any. */
static bool arrive(struct sim_machine *machine, struct sim_gpu *gpu, uint64_t time_ns) {
  bool has_arrived = false;
  while (gpu->num_arrived != gpu->num_sent) {
    const struct sim_signal *next = &gpu->in_flight[gpu->num_arrived % SIM_NUM_IN_FLIGHT];
    if (next->at_ns > time_ns) break;
    machine->semaphores[next->semaphore]++;
    gpu->num_arrived++;
    has_arrived = true;
  }
  return has_arrived;
}

/* Signals of one GPU arrive in order. Of too many at a time the oldest arrives now; returns whether it has. */
static bool send(struct sim_machine *machine, struct sim_gpu *gpu, const struct sim_op *op, uint64_t time_ns) {
  uint64_t at_ns = time_ns + (uint64_t)llround(op->duration_ns);
  bool is_full = gpu->num_sent - gpu->num_arrived == SIM_NUM_IN_FLIGHT;
  if (gpu->num_sent != gpu->num_arrived) {
    uint64_t before_ns = gpu->in_flight[(gpu->num_sent - 1) % SIM_NUM_IN_FLIGHT].at_ns;
    if (at_ns < before_ns) at_ns = before_ns;
  }
  if (is_full) machine->semaphores[gpu->in_flight[gpu->num_arrived++ % SIM_NUM_IN_FLIGHT].semaphore]++;
  gpu->in_flight[gpu->num_sent++ % SIM_NUM_IN_FLIGHT] = (struct sim_signal){at_ns, op->target, 0};
  return is_full;
}

/* Run what takes no time at the head of the queue, and start what does. Returns whether a semaphore was signalled. */
static bool drain(struct sim_machine *machine, struct sim_gpu *gpu, uint64_t time_ns) {
  bool has_signalled = false, has_moved = false;
  while (gpu->num_completed != gpu->num_enqueued && !gpu->is_started) {
    const struct sim_op *op = &gpu->queue[gpu->num_completed % SIM_QUEUE_SIZE];
    if (op->kind == SIM_OP_WAIT && machine->semaphores[op->target] < op->value) break;
    has_moved = true;
    if (op->kind == SIM_OP_KERNEL || op->kind == SIM_OP_FIXED) {
      sim_integrate(gpu, time_ns);
      gpu->op_left = 1.0;
      gpu->is_started = 1;
      break;
    }
    if (op->kind == SIM_OP_SIGNAL && op->duration_ns > 0) {
      has_signalled |= send(machine, gpu, op, time_ns);
    } else if (op->kind == SIM_OP_SIGNAL) {
      machine->semaphores[op->target]++;
      has_signalled = true;
    } else if (op->kind == SIM_OP_WRITE) {
      push_write(machine, op);
    } else if (op->kind == SIM_OP_TIMESTAMP) {
      sim_reach_timestamp(gpu, op, time_ns);
    } else if (op->kind == SIM_OP_MARK) {
      gpu->mark_ns[gpu->num_marks++ % SIM_NUM_MARKS] = time_ns;
      machine->marked_gpus |= UINT64_C(1) << (gpu - machine->gpus);
    }
    gpu->num_completed++;
    gpu->idle_at_ns = time_ns + idle_after_ns;
  }
  if (has_moved) {
    sim_note_progress(machine, gpu);
  }
  sim_refresh(gpu, time_ns);
  return has_signalled;
}

static bool is_unblocked(const struct sim_machine *machine, const struct sim_gpu *gpu) {
  if (gpu->num_completed == gpu->num_enqueued || gpu->is_started) return false;
  const struct sim_op *op = &gpu->queue[gpu->num_completed % SIM_QUEUE_SIZE];
  return op->kind != SIM_OP_WAIT || machine->semaphores[op->target] >= op->value;
}

static void drain_unblocked(struct sim_machine *machine, uint64_t time_ns) {
  bool has_signalled = true;
  while (has_signalled) {
    has_signalled = false;
    for (uint32_t index = 0; index < machine->num_gpus; index++)
      if (is_unblocked(machine, &machine->gpus[index])) has_signalled |= drain(machine, &machine->gpus[index], time_ns);
  }
}

static void drain_all(struct sim_machine *machine, struct sim_gpu *first, uint64_t time_ns) {
  if (drain(machine, first, time_ns)) drain_unblocked(machine, time_ns);
}

/* The host raises a semaphore to a value, now; never lowers it. */
void sim_raise(struct sim_machine *machine, uint32_t semaphore, uint64_t value) {
  if (machine->semaphores[semaphore] >= value) return;
  machine->semaphores[semaphore] = value;
  drain_unblocked(machine, machine->sim_ns);
}

static struct sim_gpu *next_gpu(const struct sim_machine *machine, uint64_t *next_ns) {
  const struct sim_gpu *next = NULL;
  *next_ns = SIM_NEVER;
  for (uint32_t index = 0; index < machine->num_gpus; index++) {
    uint64_t event_ns = sim_next_event_ns(&machine->gpus[index]);
    if (event_ns < *next_ns) {
      *next_ns = event_ns;
      next = &machine->gpus[index];
    }
  }
  return (struct sim_gpu *)next;
}

uint64_t sim_machine_next_ns(const struct sim_machine *machine) {
  uint64_t next_ns;
  next_gpu(machine, &next_ns);
  return next_ns;
}

/* Let the next event happen, unless it is later than time_ns; false then. */
static bool advance_by_event(struct sim_machine *machine, uint64_t time_ns) {
  uint64_t event_ns;
  struct sim_gpu *gpu = next_gpu(machine, &event_ns);
  if (event_ns > time_ns || !gpu) return false;
  if (machine->sim_ns < event_ns) machine->sim_ns = event_ns;
  sim_integrate(gpu, event_ns);
  if (gpu->is_started && gpu->op_end_ns <= event_ns) {
    gpu->is_started = 0;
    gpu->idle_at_ns = event_ns + idle_after_ns;
    gpu->num_completed++;
    sim_note_progress(machine, gpu);
  }
  bool has_arrived = arrive(machine, gpu, event_ns);
  drain_all(machine, gpu, event_ns);
  if (has_arrived) drain_unblocked(machine, event_ns);
  return true;
}

void sim_advance_to(struct sim_machine *machine, uint64_t time_ns) {
  while (advance_by_event(machine, time_ns)) {
  }
  if (machine->sim_ns < time_ns) machine->sim_ns = time_ns;
}

uint64_t sim_advance_to_mark(struct sim_machine *machine, uint64_t time_ns) {
  while (!machine->marked_gpus && advance_by_event(machine, time_ns)) {
  }
  /* All of that moment, on other GPUs too. Where nothing will ever happen, time stands still. */
  bool is_over = !machine->marked_gpus && time_ns != SIM_NEVER;
  sim_advance_to(machine, is_over ? time_ns : machine->sim_ns);
  return machine->sim_ns;
}

/* Times of marks that were passed since the last call, in order, as many as fit. */
uint32_t sim_take_marks(struct sim_machine *machine, uint32_t index, uint64_t *times_ns, uint32_t capacity) {
  struct sim_gpu *gpu = &machine->gpus[index];
  uint32_t count = 0;
  while (count < capacity && gpu->num_marks_taken != gpu->num_marks)
    times_ns[count++] = gpu->mark_ns[gpu->num_marks_taken++ % SIM_NUM_MARKS];
  if (gpu->num_marks_taken == gpu->num_marks) machine->marked_gpus &= ~(UINT64_C(1) << index);
  return count;
}

int sim_enqueue(struct sim_machine *machine, uint32_t index, struct sim_op op) {
  struct sim_gpu *gpu = &machine->gpus[index];
  if (gpu->num_enqueued - gpu->num_completed >= SIM_QUEUE_SIZE) return EAGAIN;
  bool was_empty = gpu->num_completed == gpu->num_enqueued;
  gpu->queue[gpu->num_enqueued % SIM_QUEUE_SIZE] = op;
  gpu->num_enqueued++;
  if (was_empty) drain_all(machine, gpu, machine->sim_ns);
  return 0;
}

void sim_drop_queue(struct sim_machine *machine, struct sim_gpu *gpu) {
  sim_integrate(gpu, machine->sim_ns);
  gpu->is_started = 0;
  gpu->num_completed = gpu->num_enqueued;
  gpu->num_arrived = gpu->num_sent;
  gpu->idle_at_ns = machine->sim_ns + idle_after_ns;
  sim_note_progress(machine, gpu);
  sim_refresh(gpu, machine->sim_ns);
}

void sim_open_stream(struct sim_machine *machine, uint32_t index) {
  struct sim_gpu *gpu = &machine->gpus[index];
  uint32_t pid = (uint32_t)getpid();
  if (gpu->owner_pid != pid) {
    if (gpu->owner_pid && !sim_is_alive(gpu->owner_pid)) sim_drop_queue(machine, gpu);
    gpu->owner_pid = pid;
  }
  uint32_t *free_entry = NULL;
  for (uint32_t entry = 0; entry < SIM_MAX_PROCESSES; entry++) {
    uint32_t listed = gpu->process_pids[entry];
    if (listed == pid) return;
    if (!free_entry && (listed == 0 || !sim_is_alive(listed))) free_entry = &gpu->process_pids[entry];
  }
  if (free_entry) *free_entry = pid;
}

uint32_t sim_stream_user(const struct sim_machine *machine, uint32_t index) {
  uint32_t pid = machine->gpus[index].owner_pid;
  return pid && pid != (uint32_t)getpid() && sim_is_alive(pid) ? pid : 0;
}

/* Block until so many operations are completed. EINTR lets a caller look at its signals. In virtual time nobody sleeps:
 * the answer is ETIMEDOUT if it takes any time. */
int sim_wait(struct sim_machine *machine, uint32_t index, uint64_t num_completed, uint64_t timeout_ns) {
  struct sim_gpu *gpu = &machine->gpus[index];
  sim_lock(machine);
  bool is_done = gpu->num_completed >= num_completed;
  uint32_t progress = gpu->progress;
  uint64_t now_ns = machine->sim_ns, next_ns = sim_next_event_ns(gpu);
  sim_unlock(machine);
  if (is_done) return 0;
  if (machine->is_virtual || timeout_ns == 0) return ETIMEDOUT;
  uint64_t pause_ns = timeout_ns < longest_wait_ns ? timeout_ns : longest_wait_ns;
  if (next_ns - now_ns < pause_ns) pause_ns = next_ns - now_ns;
  sim_futex_wait(&gpu->progress, progress, pause_ns);
  return EINTR;
}

/* CUDA events: points of a stream, and when the device reached them. */

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
