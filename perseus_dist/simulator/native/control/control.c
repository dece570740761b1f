/* What the Python package calls: perseus_sim_*. Results are 0 or an errno. */
#define _GNU_SOURCE
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t virtual_start_ns = 1000000000u;
static const uint64_t watch_owners_ns = 500 * 1000000u;

/* Sizes of the structures that Python mirrors, so that a library from another build is found out. */
SIM_EXPORT uint64_t perseus_sim_layout(void) {
  return sizeof(struct sim_preset) + sizeof(struct sim_fault) * UINT64_C(1000003) +
         sizeof(struct sim_call) * UINT64_C(10007) + sizeof(struct sim_gpu_state) * UINT64_C(101) +
         sizeof(struct sim_op) * UINT64_C(1009);
}

static bool is_valid(const struct sim_preset *preset) {
  return preset->num_clocks >= 1 && preset->num_clocks <= SIM_MAX_CLOCKS && preset->num_classes <= SIM_MAX_CLASSES &&
         preset->num_memory_clocks >= 1 && preset->num_memory_clocks <= 4;
}

/* presets: (num_gpus). */
SIM_EXPORT int perseus_sim_create(const char *path, const struct sim_preset *presets, uint32_t num_gpus,
                                  uint32_t is_virtual, uint32_t nobody_may_set) {
  if (num_gpus < 1 || num_gpus > SIM_MAX_GPUS) return EINVAL;
  for (uint32_t index = 0; index < num_gpus; index++)
    if (!is_valid(&presets[index])) return EINVAL;
  uint64_t size = sizeof(struct sim_machine) + num_gpus * sizeof(struct sim_gpu);
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return errno;
  /* Processes of other users may read the GPUs, as with the real driver. */
  uint64_t header[2] = {SIM_MAGIC, size};
  bool is_written = fchmod(file, 0666) == 0 && ftruncate(file, (off_t)size) == 0 &&
                    pwrite(file, header, sizeof header, 0) == sizeof header;
  int error = is_written ? 0 : errno;
  /* Where memory is scarce this fails now; a page that is missing later would kill whoever touches it. */
  if (!error && !is_virtual) error = posix_fallocate(file, 0, (off_t)size);
  close(file);
  if (error) return error;
  struct sim_machine *machine = sim_map(path);
  if (!machine) return EIO;
  machine->num_gpus = num_gpus;
  machine->is_virtual = is_virtual;
  machine->virtual_ns = virtual_start_ns;
  machine->nobody_may_set = nobody_may_set;
  machine->owner_uid = (uint32_t)geteuid();
  machine->is_driver_loaded = 1;
  machine->random = UINT64_C(0x9e3779b97f4a7c15);
  machine->engine_wakes_ns = SIM_NEVER;
  machine->sim_ns = sim_now_ns(machine);
  for (uint32_t index = 0; index < num_gpus; index++) {
    struct sim_gpu *gpu = &machine->gpus[index];
    gpu->preset = presets[index];
    snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-51a1a7ed-0000-4000-8000-%012x", index);
    gpu->power_limit_mw = gpu->preset.default_power_limit_mw;
    gpu->is_persistent = 1;
    gpu->energy_phase = index * 0.618 - (uint32_t)(index * 0.618); /* the golden ratio spreads them evenly */
    gpu->temperature_c = 45;
    gpu->since_ns = machine->sim_ns;
    gpu->average_mw = gpu->preset.idle_power_mw;
    sim_refresh(gpu, machine->sim_ns);
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  error = pthread_mutex_init(&machine->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  sim_unmap(machine);
  return error;
}

SIM_EXPORT struct sim_machine *perseus_sim_open(const char *path) { return sim_map(path); }

SIM_EXPORT void perseus_sim_close(struct sim_machine *machine) {
  sim_forget_pages(machine);
  sim_unmap(machine);
}

SIM_EXPORT uint32_t perseus_sim_num_gpus(const struct sim_machine *machine) { return machine->num_gpus; }

/* ---------------------------------------------------------------- time */

SIM_EXPORT uint64_t perseus_sim_now_ns(const struct sim_machine *machine) { return sim_now_ns(machine); }

SIM_EXPORT void perseus_sim_advance(struct sim_machine *machine, uint64_t duration_ns) {
  sim_lock(machine);
  machine->virtual_ns += duration_ns;
  sim_advance_to(machine, machine->virtual_ns);
  sim_deliver_writes(machine);
  sim_unlock(machine);
}

/* Let virtual time pass until some GPU passes a mark, but no further than time_ns; returns when that is, and sets the
 * bits of GPUs whose marks are to be taken. */
SIM_EXPORT uint64_t perseus_sim_advance_to_mark(struct sim_machine *machine, uint64_t time_ns, uint64_t *marked_gpus) {
  sim_lock(machine);
  machine->virtual_ns = sim_advance_to_mark(machine, time_ns);
  *marked_gpus = machine->marked_gpus;
  if (machine->num_writes != machine->num_delivered) sim_deliver_writes(machine);
  uint64_t now_ns = machine->virtual_ns;
  sim_unlock(machine);
  return now_ns;
}

SIM_EXPORT uint64_t perseus_sim_next_event_ns(struct sim_machine *machine) {
  sim_lock(machine);
  uint64_t next_ns = sim_machine_next_ns(machine);
  sim_unlock(machine);
  return next_ns;
}

/* Work of a process that was killed ends, as a CUDA context does. */
static void drop_dead_work(struct sim_machine *machine) {
  for (uint32_t index = 0; index < machine->num_gpus; index++) {
    struct sim_gpu *gpu = &machine->gpus[index];
    if (gpu->num_completed != gpu->num_enqueued && gpu->owner_pid && !sim_is_alive(gpu->owner_pid))
      sim_drop_queue(machine, gpu);
  }
}

/* Keep the machine up to date in wall time, until perseus_sim_stop_engine: a thread of the process that owns the
 * machine. */
SIM_EXPORT void perseus_sim_engine(struct sim_machine *machine, const uint32_t *stop) {
  uint64_t watch_at_ns = 0;
  while (!__atomic_load_n(stop, __ATOMIC_SEQ_CST)) {
    uint32_t word = __atomic_load_n(&machine->engine_word, __ATOMIC_SEQ_CST);
    sim_lock(machine);
    if (machine->sim_ns >= watch_at_ns) {
      drop_dead_work(machine);
      watch_at_ns = machine->sim_ns + watch_owners_ns;
    }
    sim_deliver_writes(machine);
    machine->num_engines = 1;
    uint64_t next_ns = sim_machine_next_ns(machine);
    machine->engine_wakes_ns = next_ns < watch_at_ns ? next_ns : watch_at_ns;
    uint64_t pause_ns = machine->engine_wakes_ns - machine->sim_ns;
    sim_unlock(machine);
    sim_futex_wait(&machine->engine_word, word, pause_ns);
  }
  sim_lock(machine);
  machine->num_engines = 0;
  machine->engine_wakes_ns = SIM_NEVER;
  sim_unlock(machine);
}

SIM_EXPORT void perseus_sim_stop_engine(struct sim_machine *machine, uint32_t *stop) {
  __atomic_store_n(stop, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&machine->engine_word, 1, __ATOMIC_SEQ_CST);
  sim_futex_wake(&machine->engine_word);
}
