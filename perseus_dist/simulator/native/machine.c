#define _GNU_SOURCE
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct sim_machine *sim_map(const char *path) {
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return NULL;
  struct stat status;
  struct sim_machine *machine = NULL;
  if (fstat(file, &status) == 0 && (uint64_t)status.st_size >= sizeof *machine) {
    void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) machine = mapped;
  }
  close(file);
  if (machine && (machine->magic != SIM_MAGIC || machine->size != (uint64_t)status.st_size)) {
    munmap(machine, (size_t)status.st_size);
    return NULL;
  }
  return machine;
}

void sim_unmap(struct sim_machine *machine) { munmap(machine, machine->size); }

uint64_t sim_now_ns(const struct sim_machine *machine) {
  if (machine->is_virtual) return machine->virtual_ns;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_lock(struct sim_machine *machine) {
  /* A process may be killed while it holds the lock. At worst the rest of one step is then missing, and every step
   * begins from numbers that are valid at any time, so the simulation goes on. */
  if (pthread_mutex_lock(&machine->mutex) == EOWNERDEAD) pthread_mutex_consistent(&machine->mutex);
  sim_advance_to(machine, sim_now_ns(machine));
}

/* GPUs whose waiters are to be woken; after the lock is given back, so that they find it free. */
static __thread uint64_t gpus_to_wake;

void sim_note_progress(struct sim_machine *machine, struct sim_gpu *gpu) {
  if (machine->is_virtual) return; /* there nobody sleeps */
  gpu->progress++;
  gpus_to_wake |= UINT64_C(1) << (gpu - machine->gpus);
}

void sim_unlock(struct sim_machine *machine) {
  bool wakes = machine->num_engines && (sim_machine_next_ns(machine) < machine->engine_wakes_ns ||
                                        machine->num_writes != machine->num_delivered);
  if (wakes) __atomic_add_fetch(&machine->engine_word, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(&machine->mutex);
  if (wakes) sim_futex_wake(&machine->engine_word);
  for (; gpus_to_wake; gpus_to_wake &= gpus_to_wake - 1)
    sim_futex_wake(&machine->gpus[__builtin_ctzll(gpus_to_wake)].progress);
}

void sim_sleep_us(uint64_t duration_us) {
  struct timespec left = {(time_t)(duration_us / 1000000u), (long)(duration_us % 1000000u) * 1000};
  while (nanosleep(&left, &left) && errno == EINTR) {
  }
}

void sim_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns) {
  struct timespec timeout = {(time_t)(timeout_ns / 1000000000u), (long)(timeout_ns % 1000000000u)};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, NULL, 0);
}

void sim_futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

bool sim_is_alive(uint32_t pid) {
  if (kill((pid_t)pid, 0) != 0) return errno != ESRCH;
  char path[32], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true; /* it may not be looked at */
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false; /* reaped meanwhile */
  text[length] = '\0';
  const char *name_end = strrchr(text, ')');
  return !name_end || (strncmp(name_end, ") Z", 3) != 0 && strncmp(name_end, ") X", 3) != 0);
}
