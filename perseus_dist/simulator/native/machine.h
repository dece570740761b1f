/* The simulated machine: everything that all processes share, in one mmap'd file.
 *
 *   trainers (streams) --+                      +-- engine thread: advances, writes into host pages
 *   NVML callers --------+--> struct sim_machine+-- tests: faults, true energy, event log
 *   CUDA callers --------+    (one robust lock)
 *
 * The machine is one discrete-event simulation. Whoever takes the lock first advances it, in the order of time, to
 * "now": CLOCK_MONOTONIC, or a number that only perseus_sim_advance moves (virtual time). So a host that is late learns
 * late what happened, but never changes when it happened.
 */
#ifndef PERSEUS_SIM_MACHINE_H
#define PERSEUS_SIM_MACHINE_H

#include <stdbool.h>

#include "layout.h"

#define SIM_EXPORT __attribute__((visibility("default")))

/* machine.c: the file, the lock, time. */
struct sim_machine *sim_map(const char *path);
void sim_unmap(struct sim_machine *machine);
void sim_lock(struct sim_machine *machine);   /* and advance to now */
void sim_unlock(struct sim_machine *machine); /* and wake the engine if something will happen earlier than it thinks */
uint64_t sim_now_ns(const struct sim_machine *machine);
void sim_note_progress(struct sim_machine *machine, struct sim_gpu *gpu); /* wake who waits for its stream, at unlock */
void sim_sleep_us(uint64_t duration_us);
void sim_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);
void sim_futex_wake(uint32_t *word);
bool sim_is_alive(uint32_t pid); /* false for zombies: what they had is gone */

/* physics.c: clock, power, energy and progress of one GPU. The lock is held. */
void sim_integrate(struct sim_gpu *gpu, uint64_t time_ns);
void sim_refresh(struct sim_gpu *gpu,
                 uint64_t time_ns); /* after a change of load, lock, cap or limit; integrates first */
uint64_t sim_next_event_ns(const struct sim_gpu *gpu);
double sim_energy_at(const struct sim_gpu *gpu, uint64_t time_ns);
double sim_published_at(const struct sim_gpu *gpu, uint64_t time_ns);
uint64_t sim_counter_mj(const struct sim_gpu *gpu, uint64_t time_ns); /* what NVML tells */
/* Keep what the counter has published until then. */
void sim_keep_readings(struct sim_gpu *gpu, uint64_t time_ns);
double sim_average_power_at(const struct sim_gpu *gpu, uint64_t time_ns);
uint32_t sim_snap_mhz(const struct sim_preset *preset, uint32_t clock_mhz);
/* A call's latency, drawn from the machine's own random numbers so that runs in virtual time repeat. */
uint64_t sim_call_latency_us(struct sim_machine *machine, const struct sim_gpu *gpu);
void sim_request_lock(struct sim_machine *machine, struct sim_gpu *gpu, uint32_t lo_mhz, uint32_t hi_mhz,
                      uint64_t delay_us);

/* stream.c: the queues, and the events of the whole machine. The lock is held, but for sim_wait. */
void sim_advance_to(struct sim_machine *machine, uint64_t time_ns);
/* Advance to the first moment at which some GPU passes a mark, or to time_ns if that is earlier. Returns that moment. */
uint64_t sim_advance_to_mark(struct sim_machine *machine, uint64_t time_ns);
uint64_t sim_machine_next_ns(const struct sim_machine *machine);
int sim_enqueue(struct sim_machine *machine, uint32_t gpu, struct sim_op op);
uint32_t sim_take_marks(struct sim_machine *machine, uint32_t gpu, uint64_t *times_ns, uint32_t capacity);
void sim_drop_queue(struct sim_machine *machine, struct sim_gpu *gpu);
int sim_wait(struct sim_machine *machine, uint32_t gpu, uint64_t num_completed, uint64_t timeout_ns);
void sim_open_stream(struct sim_machine *machine, uint32_t gpu);
uint32_t sim_stream_user(const struct sim_machine *machine, uint32_t gpu); /* another process that has it, or 0 */
void sim_raise(struct sim_machine *machine, uint32_t semaphore, uint64_t value);

/* stream.c: CUDA events. The lock is held. Results are 0 or an errno; EAGAIN: not reached yet. */
int sim_new_timestamp(struct sim_machine *machine, uint32_t gpu); /* a slot, or -1 */
int sim_record_timestamp(struct sim_machine *machine, uint32_t gpu, uint32_t slot);
int sim_timestamp_ns(const struct sim_machine *machine, uint32_t gpu, uint32_t slot, uint64_t *time_ns);
void sim_free_timestamp(struct sim_machine *machine, uint32_t gpu, uint32_t slot);
void sim_reach_timestamp(struct sim_gpu *gpu, const struct sim_op *op, uint64_t time_ns);

/* pages.c: host pages that the device writes to. */
int sim_register_page(struct sim_machine *machine, const void *address, uint64_t size);
void sim_unregister_page(struct sim_machine *machine, uint32_t page);
void sim_deliver_writes(struct sim_machine *machine);
void sim_forget_pages(struct sim_machine *machine);

/* faults.c: injected faults, and the log of calls that change something. */
int sim_fault(struct sim_machine *machine, const char *function, int gpu, uint64_t *delay_us, bool *is_ignored);
void sim_log_call(struct sim_machine *machine, const char *function, uint32_t gpu, uint32_t lo, uint32_t hi,
                  int result);

#endif
