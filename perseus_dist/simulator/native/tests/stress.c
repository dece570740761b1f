/* Random work from several threads, in virtual and in wall time, for sanitizers to watch. Invariants are checked on the
 * way: time and energy never go back, every operation ends, and power times time is what the counter says. */
#define _GNU_SOURCE
#include "../machine.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int perseus_sim_create(const char *path, const struct sim_preset *presets, uint32_t num_gpus, uint32_t is_virtual,
                       uint32_t nobody_may_set);
struct sim_machine *perseus_sim_open(const char *path);
void perseus_sim_close(struct sim_machine *machine);
void perseus_sim_advance(struct sim_machine *machine, uint64_t duration_ns);
void perseus_sim_engine(struct sim_machine *machine, const uint32_t *stop);
void perseus_sim_stop_engine(struct sim_machine *machine, uint32_t *stop);

enum { NUM_GPUS = 4, NUM_OPS = 2000 };

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (0)

static void fill_preset(struct sim_preset *preset) {
  *preset = (struct sim_preset){.name = "test",
                                .num_clocks = 10,
                                .num_memory_clocks = 1,
                                .num_classes = 1,
                                .call_latency_us = 100,
                                .call_jitter_us = 50,
                                .release_us = 300,
                                .energy_period_us = 2000,
                                .power_average_us = 1000,
                                .min_power_limit_mw = 100000,
                                .default_power_limit_mw = 400000,
                                .max_power_limit_mw = 400000,
                                .regulated_share = 0.98,
                                .idle_power_mw = 50e3,
                                .memory_clocks_mhz = {1593}};
  strcpy(preset->classes[0].name, "kernel");
  for (uint32_t index = 0; index < preset->num_clocks; index++) {
    preset->clocks_mhz[index] = 1400 - 100 * index;
    preset->blocking_power_mw[index] = 80e3;
    preset->classes[0].relative_time[index] = 1400.0 / preset->clocks_mhz[index];
    preset->classes[0].power_mw[index] = 300.0 * preset->clocks_mhz[index];
  }
}

static char path[64];

static struct sim_machine *new_machine(uint32_t is_virtual) {
  struct sim_preset presets[NUM_GPUS];
  for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) fill_preset(&presets[gpu]);
  snprintf(path, sizeof path, "/tmp/perseus-sim-stress-%d", (int)getpid());
  unlink(path);
  CHECK(perseus_sim_create(path, presets, NUM_GPUS, is_virtual, 0) == 0);
  struct sim_machine *machine = perseus_sim_open(path);
  CHECK(machine);
  return machine;
}

static void enqueue(struct sim_machine *machine, uint32_t gpu, struct sim_op op) {
  sim_lock(machine);
  CHECK(sim_enqueue(machine, gpu, op) == 0);
  sim_unlock(machine);
}

/* A ring of GPUs: each waits for the one before, now and then for its host, works, and signals; clocks and caps change
 * meanwhile. */
static void work(struct sim_machine *machine, uint32_t gpu, unsigned seed, double mean_ns) {
  struct sim_gpu *self = &machine->gpus[gpu];
  for (uint64_t round = 1; round <= NUM_OPS; round++) {
    if (gpu > 0) enqueue(machine, gpu, (struct sim_op){.kind = SIM_OP_WAIT, .target = gpu - 1, .value = round});
    bool waits_for_host = rand_r(&seed) % 6 == 0;
    if (waits_for_host)
      enqueue(machine, gpu, (struct sim_op){.kind = SIM_OP_WAIT, .target = NUM_GPUS + gpu, .value = round});
    double duration_ns = mean_ns * (rand_r(&seed) % 1000) / 500.0;
    enqueue(machine, gpu,
            (struct sim_op){.kind = rand_r(&seed) % 4 ? SIM_OP_KERNEL : SIM_OP_FIXED, .duration_ns = duration_ns});
    enqueue(machine, gpu, (struct sim_op){.kind = SIM_OP_SIGNAL, .target = gpu});
    sim_lock(machine);
    if (rand_r(&seed) % 3 == 0)
      sim_request_lock(machine, self, 500, 500 + 100 * (rand_r(&seed) % 10), sim_call_latency_us(machine, self));
    if (waits_for_host) sim_raise(machine, NUM_GPUS + gpu, round);
    if (rand_r(&seed) % 9 == 0) sim_request_lock(machine, self, 0, 0, 0);
    if (rand_r(&seed) % 5 == 0) self->thermal_cap_mhz = rand_r(&seed) % 2 ? 900 : 0;
    if (rand_r(&seed) % 7 == 0) self->power_limit_mw = 200000 + 1000 * (uint32_t)(rand_r(&seed) % 200);
    sim_refresh(self, machine->sim_ns);
    double published_mj = sim_published_at(self, machine->sim_ns), energy_mj = sim_energy_at(self, machine->sim_ns);
    CHECK(published_mj <= energy_mj + 1e-6 && energy_mj - published_mj <= 500e3 * 2e-3 + 1e-6);
    CHECK(self->power_mw >= 50e3 - 1e-6 && self->power_mw <= 420e3);
    sim_unlock(machine);
  }
}

static void check_finished(struct sim_machine *machine) {
  for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) {
    CHECK(machine->gpus[gpu].num_completed == machine->gpus[gpu].num_enqueued);
    CHECK(machine->semaphores[gpu] == NUM_OPS);
    CHECK(isfinite(machine->gpus[gpu].energy_mj));
  }
  perseus_sim_close(machine);
  unlink(path);
}

static void test_virtual(void) {
  struct sim_machine *machine = new_machine(1);
  for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) work(machine, gpu, 7 + gpu, 5e6);
  double before_mj = 0;
  for (unsigned step = 0; sim_machine_next_ns(machine) != SIM_NEVER; step++) {
    perseus_sim_advance(machine, 1000 + step % 7919 * 1000);
    CHECK(machine->gpus[0].energy_mj >= before_mj);
    before_mj = machine->gpus[0].energy_mj;
  }
  check_finished(machine);
}

/* Two runs of the same work, advanced in different steps, end in the same state. */
static void test_steps_do_not_matter(void) {
  double energy_mj[2], running_ns[2];
  for (int run = 0; run < 2; run++) {
    struct sim_machine *machine = new_machine(1);
    for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) work(machine, gpu, 3 + gpu, 5e6);
    uint64_t end_ns = machine->sim_ns + 60000000000u;
    while (machine->sim_ns < end_ns) perseus_sim_advance(machine, run ? 60000000000u : 12500000u);
    energy_mj[run] = sim_energy_at(&machine->gpus[NUM_GPUS - 1], end_ns);
    running_ns[run] = machine->gpus[NUM_GPUS - 1].running_ns;
    check_finished(machine);
  }
  CHECK(fabs(energy_mj[0] - energy_mj[1]) < 1e-6 * energy_mj[0] && running_ns[0] == running_ns[1]);
}

struct worker {
  struct sim_machine *machine;
  uint32_t gpu;
};

static void *run_worker(void *argument) {
  struct worker *worker = argument;
  work(worker->machine, worker->gpu, 11 + worker->gpu, 20e3);
  int result;
  while ((result = sim_wait(worker->machine, worker->gpu, worker->machine->gpus[worker->gpu].num_enqueued,
                            SIM_NEVER)) == EINTR) {
  }
  CHECK(result == 0);
  return NULL;
}

static uint32_t stop;

static void *run_engine(void *machine) {
  perseus_sim_engine(machine, &stop);
  return NULL;
}

static void test_threads(void) {
  struct sim_machine *machine = new_machine(0);
  pthread_t engine, threads[NUM_GPUS];
  struct worker workers[NUM_GPUS];
  CHECK(pthread_create(&engine, NULL, run_engine, machine) == 0);
  for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) {
    workers[gpu] = (struct worker){machine, gpu};
    CHECK(pthread_create(&threads[gpu], NULL, run_worker, &workers[gpu]) == 0);
  }
  for (uint32_t gpu = 0; gpu < NUM_GPUS; gpu++) pthread_join(threads[gpu], NULL);
  perseus_sim_stop_engine(machine, &stop);
  pthread_join(engine, NULL);
  check_finished(machine);
}

int main(void) {
  test_virtual();
  test_steps_do_not_matter();
  test_threads();
  puts("perseus_sim_stress: passed");
  return 0;
}
