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

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_EXPORT __attribute__((visibility("default")))

enum {
  SIM_MAX_GPUS = 64,
  SIM_MAX_CLOCKS = 192,
  SIM_MAX_CLASSES = 8,
  SIM_MAX_PROCESSES = 32,
  SIM_QUEUE_SIZE = 16384,
  SIM_NUM_SEMAPHORES = 4096,
  SIM_NUM_TIMESTAMPS = 8192,
  SIM_NUM_MARKS = SIM_QUEUE_SIZE,
  SIM_NUM_READINGS = 4096,
  SIM_NUM_PAGES = 256,
  SIM_NUM_WRITES = 16384,
  SIM_NUM_FAULTS = 64,
  SIM_NUM_CALLS = 16384,
};

#define SIM_NEVER UINT64_MAX
/* Changes with the layout, so that a file of another version is refused. */
#define SIM_MAGIC (UINT64_C(0x32736d6973726570) + sizeof(struct sim_machine) * 127 + sizeof(struct sim_gpu))

/* Bits of nvmlDeviceGetCurrentClocksEventReasons. */
enum { SIM_REASON_IDLE = 0x1, SIM_REASON_USER_CLOCKS = 0x2, SIM_REASON_POWER_CAP = 0x4, SIM_REASON_THERMAL = 0x20 };

/* What a kind of kernel costs at each supported clock. */
struct sim_class {
  char name[32];
  double relative_time[SIM_MAX_CLOCKS]; /* 1.0 = the kernel's time at the maximum clock under the default power limit */
  double power_mw[SIM_MAX_CLOCKS];
};

/* A GPU model. Filled by Python (presets.py) before the machine starts, constant from then on, but for the timing. */
struct sim_preset {
  char name[64];
  uint32_t architecture, compute_major, compute_minor, pci_device_id, memory_mib;
  uint32_t num_clocks, num_memory_clocks, num_classes;
  uint32_t clocks_mhz[SIM_MAX_CLOCKS]; /* descending */
  uint32_t memory_clocks_mhz[4];       /* descending */
  uint32_t min_power_limit_mw, default_power_limit_mw, max_power_limit_mw;
  uint32_t call_latency_us, call_jitter_us, settle_us, energy_period_us, power_average_us, padding;
  double regulated_share; /* under a power cap the driver keeps the mean power at this share of the limit */
  double idle_power_mw;
  double blocking_power_mw[SIM_MAX_CLOCKS];
  struct sim_class classes[SIM_MAX_CLASSES];
};

enum sim_op_kind {
  SIM_OP_KERNEL,
  SIM_OP_FIXED,
  SIM_OP_SIGNAL,
  SIM_OP_WAIT,
  SIM_OP_WRITE,
  SIM_OP_TIMESTAMP,
  SIM_OP_MARK
};

struct sim_op {
  uint32_t kind;
  uint32_t target; /* KERNEL: class; SIGNAL, WAIT: semaphore; WRITE: page; TIMESTAMP: slot */
  uint64_t value;  /* WAIT: least value; WRITE: generation of the page << 32 | value; TIMESTAMP: number of the record */
  union {
    double duration_ns; /* KERNEL: at the maximum clock; FIXED: at every clock */
    uint64_t offset;    /* WRITE: byte in the page */
  };
};

/* A CUDA event. Every record has a new number, so that an earlier one that still is in the queue is told apart. */
struct sim_timestamp {
  uint32_t owner_pid; /* 0: free */
  uint32_t recorded;  /* number of the latest record; 0: none */
  uint32_t reached;   /* number of the latest record that the device has passed */
  uint32_t num_records;
  uint64_t time_ns;
};

/* One publication of the energy counter. */
struct sim_reading {
  uint64_t time_ns, energy_mj;
};

enum sim_load { SIM_IDLE, SIM_BLOCKED, SIM_RUNNING };

struct sim_gpu {
  struct sim_preset preset;
  char uuid[48];

  /* What a user or an operator set. */
  uint32_t lock_lo_mhz, lock_hi_mhz; /* 0, 0: not locked */
  uint32_t is_pending, pending_lo_mhz, pending_hi_mhz;
  uint32_t power_limit_mw, is_persistent, is_mig;
  uint64_t pending_at_ns, num_sets, num_resets;

  /* What a test set. */
  uint32_t thermal_cap_mhz, temperature_c, is_lost, padding;
  uint64_t forced_reasons;

  /* Load, and what follows from it until the next event. */
  uint32_t load, clock_index;
  uint64_t idle_at_ns, op_end_ns, reasons;
  double power_mw, op_duration_ns; /* at the current clock */
  double op_left;                  /* share of the running operation that is still to do, at since_ns */

  /* Integrals until since_ns. */
  uint64_t since_ns;
  double energy_mj, published_mj, average_mw, running_ns;
  double reason_ns[8];    /* how long each of the lowest bits of the event reasons was set */
  double energy_phase;    /* when in the period the counter is published, 0 to 1: GPUs do not do it together */
  uint64_t kept_until_ns;   /* publications are kept from then on, for a reader in virtual time; 0: they are not */
  uint64_t num_readings, num_readings_taken;
  double counted_from_mj; /* what NVML's counter leaves out: energy from before the driver was loaded */

  /* The compute stream. */
  uint32_t progress; /* futex: changes whenever the head of the queue does */
  uint32_t owner_pid;
  uint64_t num_enqueued, num_completed;
  uint64_t num_marks, num_marks_taken;
  uint32_t is_started, next_timestamp;
  uint32_t process_pids[SIM_MAX_PROCESSES];
  struct sim_timestamp timestamps[SIM_NUM_TIMESTAMPS];
  struct sim_reading readings[SIM_NUM_READINGS]; /* a ring */
  uint64_t mark_ns[SIM_NUM_MARKS]; /* when the device passed each mark, a ring */
  struct sim_op queue[SIM_QUEUE_SIZE];
};

/* A host page that the device writes to: part of a file that some process has mapped. */
struct sim_page {
  char path[256];
  uint64_t file_offset, size;
  uint32_t owner_pid;  /* 0: free */
  uint32_t generation; /* counts registrations, so that a late write never meets another page in its place */
};

struct sim_write {
  uint32_t page, generation, value, padding;
  uint64_t offset;
};

struct sim_fault {
  char function[64]; /* glob; "" = free */
  uint64_t gpu_mask;
  int32_t result;                         /* returned instead of running the function; 0: runs it */
  int32_t num_skipped, num_left;          /* num_left < 0: for ever */
  uint32_t delay_us, is_ignored, padding; /* is_ignored: answers success and does nothing */
};

struct sim_call {
  uint64_t time_ns;
  uint32_t pid, gpu, lo, hi;
  int32_t result;
  uint32_t padding;
  char function[40];
};

struct sim_machine {
  uint64_t magic, size;
  pthread_mutex_t mutex;
  uint32_t num_gpus, is_virtual, nobody_may_set, owner_uid, is_driver_loaded, driver_generation;
  uint64_t virtual_ns; /* "now" in virtual time */
  uint64_t sim_ns;     /* how far the simulation is */
  uint64_t marked_gpus; /* bits of GPUs that have passed a mark nobody has taken yet */
  uint64_t random;
  uint32_t engine_word; /* futex of the engine thread */
  uint32_t num_engines;
  uint64_t engine_wakes_ns; /* what the engine sleeps until */
  uint64_t num_writes, num_delivered, num_calls;
  uint64_t semaphores[SIM_NUM_SEMAPHORES];
  struct sim_page pages[SIM_NUM_PAGES];
  struct sim_write writes[SIM_NUM_WRITES];
  struct sim_fault faults[SIM_NUM_FAULTS];
  struct sim_call calls[SIM_NUM_CALLS];
  struct sim_gpu gpus[];
};

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

/* timestamps.c: CUDA events. The lock is held. Results are 0 or an errno; EAGAIN: not reached yet. */
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
