/* NVML: sessions, the system, finding devices. */
#define _GNU_SOURCE
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRIVER_VERSION "580.00.simulated"
enum { CUDA_VERSION = 13000, FIRST_PCI_BUS = 0x10 };

static pthread_mutex_t session_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_machine *session_machine;
static char session_path[4096];
static uint32_t session_generation; /* of the driver, when nvmlInit was called */
static int num_inits;

/* A device handle is the address of one of these. */
static char gpu_handles[SIM_MAX_GPUS], mig_handles[SIM_MAX_GPUS];

static nvmlDevice_t handle_of(uint32_t index) { return (nvmlDevice_t)(void *)(gpu_handles + index); }

static struct sim_machine *open_session(void) {
  struct sim_machine *machine = NULL;
  pthread_mutex_lock(&session_mutex);
  if (num_inits > 0 && session_generation == session_machine->driver_generation) machine = session_machine;
  pthread_mutex_unlock(&session_mutex);
  return machine;
}

/* Map the machine that the environment names now. Earlier mappings stay: a call may still hang in one. */
static struct sim_machine *find_machine(void) {
  const char *path = getenv("PERSEUS_SIM_STATE");
  if (!path || strlen(path) >= sizeof session_path) return NULL;
  if (session_machine && strcmp(path, session_path) == 0) return session_machine;
  struct sim_machine *machine = sim_map(path);
  if (machine) strcpy(session_path, path);
  return machine;
}

static nvmlReturn_t fault(struct sim_machine *machine, const char *function, int index, struct nvml_call *call) {
  sim_lock(machine);
  nvmlReturn_t result = (nvmlReturn_t)sim_fault(machine, function, index, &call->delay_us, &call->is_ignored);
  if (result == NVML_SUCCESS && index >= 0 && machine->gpus[index].is_lost) result = NVML_ERROR_GPU_IS_LOST;
  sim_unlock(machine);
  if (call->delay_us && !machine->is_virtual) sim_sleep_us(call->delay_us);
  return result;
}

nvmlReturn_t nvml_enter_any(const char *function, nvmlDevice_t device, struct nvml_call *call) {
  memset(call, 0, sizeof *call);
  struct sim_machine *machine = open_session();
  if (!machine) return NVML_ERROR_UNINITIALIZED;
  uintptr_t address = (uintptr_t)device;
  uintptr_t gpu_offset = address - (uintptr_t)gpu_handles, mig_offset = address - (uintptr_t)mig_handles;
  call->is_mig = mig_offset < machine->num_gpus;
  uintptr_t index = call->is_mig ? mig_offset : gpu_offset;
  if (index >= machine->num_gpus) return NVML_ERROR_INVALID_ARGUMENT;
  call->machine = machine;
  call->index = (uint32_t)index;
  call->gpu = &machine->gpus[index];
  return fault(machine, function, (int)index, call);
}

nvmlReturn_t nvml_enter(const char *function, nvmlDevice_t device, struct nvml_call *call) {
  nvmlReturn_t result = nvml_enter_any(function, device, call);
  return result == NVML_SUCCESS && call->is_mig ? NVML_ERROR_NOT_SUPPORTED : result;
}

nvmlReturn_t nvml_enter_system(const char *function, struct sim_machine **machine) {
  struct nvml_call call = {0};
  *machine = open_session();
  return *machine ? fault(*machine, function, -1, &call) : NVML_ERROR_UNINITIALIZED;
}

bool nvml_may_set(const struct sim_machine *machine) {
  uid_t user = geteuid();
  return !machine->nobody_may_set && (user == 0 || user == machine->owner_uid);
}

nvmlReturn_t nvml_copy_text(const char *text, char *target, unsigned int size) {
  NEED(target);
  if (size < strlen(text) + 1) return NVML_ERROR_INSUFFICIENT_SIZE;
  strcpy(target, text);
  return NVML_SUCCESS;
}

static nvmlReturn_t init(const char *function) {
  pthread_mutex_lock(&session_mutex);
  struct sim_machine *machine = find_machine();
  if (machine != session_machine) num_inits = 0; /* tests go through several machines, and may leave sessions open */
  struct nvml_call call = {0};
  nvmlReturn_t result =
      machine && machine->is_driver_loaded ? fault(machine, function, -1, &call) : NVML_ERROR_DRIVER_NOT_LOADED;
  if (result == NVML_SUCCESS) {
    session_machine = machine;
    session_generation = machine->driver_generation;
    num_inits++;
  }
  pthread_mutex_unlock(&session_mutex);
  return result;
}

SIM_EXPORT nvmlReturn_t nvmlInit_v2(void) { return init("nvmlInit_v2"); }

SIM_EXPORT nvmlReturn_t nvmlInit(void) { return init("nvmlInit"); }

SIM_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
  (void)flags;
  return init("nvmlInitWithFlags");
}

SIM_EXPORT nvmlReturn_t nvmlShutdown(void) {
  nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;
  pthread_mutex_lock(&session_mutex);
  if (num_inits > 0) {
    num_inits--;
    result = NVML_SUCCESS;
  }
  pthread_mutex_unlock(&session_mutex);
  return result;
}

SIM_EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
  switch ((int)result) {
    case NVML_SUCCESS: return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND: return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_RESET_REQUIRED: return "GPU requires reset";
    case NVML_ERROR_IN_USE: return "In use by another client";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_NO_DATA: return "No data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
  }
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int size) {
  struct sim_machine *machine;
  nvmlReturn_t result = nvml_enter_system(__func__, &machine);
  return result == NVML_SUCCESS ? nvml_copy_text(DRIVER_VERSION, version, size) : result;
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int size) {
  return nvml_copy_text("13." DRIVER_VERSION, version, size);
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
  NEED(version);
  *version = CUDA_VERSION;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
  NEED(count);
  struct sim_machine *machine;
  nvmlReturn_t result = nvml_enter_system(__func__, &machine);
  if (result == NVML_SUCCESS) *count = machine->num_gpus;
  return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

static nvmlReturn_t give_handle(const char *function, uint32_t index, nvmlDevice_t *device) {
  NEED(device);
  struct nvml_call call;
  nvmlReturn_t result = nvml_enter(function, handle_of(index), &call);
  if (result == NVML_SUCCESS) *device = handle_of(index);
  return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  if (index >= SIM_MAX_GPUS) return open_session() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
  return give_handle(__func__, index, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void mig_uuid(uint32_t index, char *uuid, size_t size) {
  snprintf(uuid, size, "MIG-51a1a7ed-0000-4000-9000-%012x", index);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  NEED(uuid && device);
  struct sim_machine *machine = open_session();
  if (!machine) return NVML_ERROR_UNINITIALIZED;
  for (uint32_t index = 0; index < machine->num_gpus; index++) {
    char mig[64];
    mig_uuid(index, mig, sizeof mig);
    if (strcmp(uuid, machine->gpus[index].uuid) == 0) return give_handle(__func__, index, device);
    if (machine->gpus[index].is_mig && strcmp(uuid, mig) == 0) {
      *device = (nvmlDevice_t)(void *)(mig_handles + index);
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
  NEED(bus_id);
  struct sim_machine *machine = open_session();
  if (!machine) return NVML_ERROR_UNINITIALIZED;
  unsigned int domain, bus;
  if (sscanf(bus_id, "%x:%x", &domain, &bus) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  if (domain != 0 || bus < FIRST_PCI_BUS || bus - FIRST_PCI_BUS >= machine->num_gpus) return NVML_ERROR_NOT_FOUND;
  return give_handle(__func__, bus - FIRST_PCI_BUS, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  ENTER(device);
  NEED(pci);
  memset(pci, 0, sizeof *pci);
  pci->bus = FIRST_PCI_BUS + call.index;
  pci->pciDeviceId = call.gpu->preset.pci_device_id;
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int size) {
  struct nvml_call call;
  nvmlReturn_t result = nvml_enter_any(__func__, device, &call);
  if (result != NVML_SUCCESS) return result;
  char mig[64];
  mig_uuid(call.index, mig, sizeof mig);
  return nvml_copy_text(call.is_mig ? mig : call.gpu->uuid, uuid, size);
}

/* ---------------------------------------------------------------- MIG: one instance per GPU that has it switched on */

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
  ENTER(device);
  NEED(current && pending);
  *current = *pending = call.gpu->is_mig;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
  NEED(is_mig);
  struct nvml_call call;
  nvmlReturn_t result = nvml_enter_any(__func__, device, &call);
  *is_mig = call.is_mig;
  return result;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
  ENTER(device);
  NEED(count);
  *count = call.gpu->is_mig;
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                            nvmlDevice_t *mig_device) {
  ENTER(device);
  NEED(mig_device);
  if (!call.gpu->is_mig || index > 0) return NVML_ERROR_NOT_FOUND;
  *mig_device = (nvmlDevice_t)(void *)(mig_handles + call.index);
  return NVML_SUCCESS;
}

SIM_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig_device, nvmlDevice_t *device) {
  NEED(device);
  struct nvml_call call;
  nvmlReturn_t result = nvml_enter_any(__func__, mig_device, &call);
  if (result == NVML_SUCCESS) *device = handle_of(call.index);
  return result;
}
