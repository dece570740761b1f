/* What all processes share, as it lies in the mmap'd file; native_library.py has the same structures. */
#ifndef PERSEUS_SIM_LAYOUT_H
#define PERSEUS_SIM_LAYOUT_H

#include <pthread.h>
#include <stdint.h>

enum {
  SIM_MAX_GPUS = 64,
  SIM_MAX_CLOCKS = 192,
  SIM_MAX_CLASSES = 8,
  SIM_MAX_PROCESSES = 32,
  SIM_QUEUE_SIZE = 16384,
  SIM_NUM_SEMAPHORES = 4096,
  SIM_NUM_TIMESTAMPS = 8192,
  SIM_NUM_MARKS = SIM_QUEUE_SIZE,
  SIM_NUM_IN_FLIGHT = 256,
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
  uint32_t call_latency_us, call_jitter_us, release_us, energy_period_us, power_average_us, padding;
  uint32_t settle_us[SIM_MAX_CLOCKS]; /* from the return of the call until each clock is there */
  double regulated_share;             /* under a power cap the driver keeps the mean power at this share of the limit */
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
    double duration_ns; /* KERNEL: at the maximum clock; FIXED: at every clock; SIGNAL: until it arrives */
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

/* A signal on its way, which the stream does not wait for. */
struct sim_signal {
  uint64_t at_ns;
  uint32_t semaphore, padding;
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
  uint64_t kept_until_ns; /* publications are kept from then on, for a reader in virtual time; 0: they are not */
  uint64_t num_readings, num_readings_taken;
  double counted_from_mj; /* what NVML's counter leaves out: energy from before the driver was loaded */

  /* The compute stream. */
  uint32_t progress; /* futex: changes whenever the head of the queue does */
  uint32_t owner_pid;
  uint64_t num_enqueued, num_completed;
  uint64_t num_marks, num_marks_taken;
  uint64_t num_sent, num_arrived; /* signals that take time */
  uint32_t is_started, next_timestamp;
  uint32_t process_pids[SIM_MAX_PROCESSES];
  struct sim_timestamp timestamps[SIM_NUM_TIMESTAMPS];
  struct sim_reading readings[SIM_NUM_READINGS];  /* a ring */
  uint64_t mark_ns[SIM_NUM_MARKS];                /* when the device passed each mark, a ring */
  struct sim_signal in_flight[SIM_NUM_IN_FLIGHT]; /* a ring, ascending by time */
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
  uint64_t virtual_ns;  /* "now" in virtual time */
  uint64_t sim_ns;      /* how far the simulation is */
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

#endif
