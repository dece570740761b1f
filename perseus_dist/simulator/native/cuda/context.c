/* CUDA: devices, contexts, and host memory that the device may write to. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_VERSION = 13000 };

static pthread_mutex_t session_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sim_machine *session_machine;
static char session_path[4096];
static uint32_t visible_gpus[SIM_MAX_GPUS]; /* CUDA's numbering, after CUDA_VISIBLE_DEVICES */
static int num_visible;
static __thread int current_gpu = -1;

static struct {
  uint64_t address, size;
  int page;
} registered[SIM_NUM_PAGES];
static int num_registered;

int cuda_current_gpu(void) { return current_gpu; }

struct sim_machine *cuda_enter(const char *function, int gpu, CUresult *result) {
  *result = CUDA_ERROR_NOT_INITIALIZED;
  struct sim_machine *machine = session_machine;
  if (!machine) return NULL;
  uint64_t delay_us = 0;
  bool is_ignored = false;
  sim_lock(machine);
  *result = (CUresult)sim_fault(machine, function, gpu, &delay_us, &is_ignored);
  sim_unlock(machine);
  if (delay_us && !machine->is_virtual) sim_sleep_us(delay_us);
  return *result == CUDA_SUCCESS && !is_ignored ? machine : NULL;
}

/* An entry of CUDA_VISIBLE_DEVICES: an index, or a UUID or the beginning of one. */
static int find_visible(const struct sim_machine *machine, const char *entry) {
  char *end;
  unsigned long index = strtoul(entry, &end, 10);
  if (*entry && !*end) return index < machine->num_gpus ? (int)index : -1;
  for (uint32_t gpu = 0; gpu < machine->num_gpus; gpu++)
    if (strncmp(entry, "GPU-", 4) == 0 && strncmp(machine->gpus[gpu].uuid, entry, strlen(entry)) == 0) return (int)gpu;
  return -1;
}

static void read_visible_devices(const struct sim_machine *machine) {
  const char *setting = getenv("CUDA_VISIBLE_DEVICES");
  num_visible = 0;
  if (!setting) {
    for (uint32_t gpu = 0; gpu < machine->num_gpus; gpu++) visible_gpus[num_visible++] = gpu;
    return;
  }
  char list[4096], *rest = list, *entry;
  snprintf(list, sizeof list, "%s", setting);
  while ((entry = strsep(&rest, ",")) && num_visible < SIM_MAX_GPUS) {
    int gpu = find_visible(machine, entry);
    if (gpu < 0) break; /* as in CUDA, the list ends at the first entry that names nothing */
    visible_gpus[num_visible++] = (uint32_t)gpu;
  }
}

/* Once per process, but for tests that go through several machines: then it begins anew. */
static void open_session(void) {
  const char *path = getenv("PERSEUS_SIM_STATE");
  if (!path || strlen(path) >= sizeof session_path || (session_machine && strcmp(path, session_path) == 0)) return;
  struct sim_machine *machine = sim_map(path);
  if (!machine) return;
  read_visible_devices(machine);
  num_registered = 0;
  current_gpu = -1;
  strcpy(session_path, path);
  session_machine = machine;
}

SIM_EXPORT CUresult cuInit(unsigned int flags) {
  (void)flags;
  pthread_mutex_lock(&session_mutex);
  open_session();
  pthread_mutex_unlock(&session_mutex);
  if (!session_machine) return CUDA_ERROR_NO_DEVICE;
  ENTER(-1);
  return machine->is_driver_loaded && num_visible > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

SIM_EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = DRIVER_VERSION;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuGetErrorString(CUresult result, const char **text) {
  switch (result) {
    case CUDA_SUCCESS: *text = "no error"; break;
    case CUDA_ERROR_INVALID_VALUE: *text = "invalid argument"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *text = "out of memory"; break;
    case CUDA_ERROR_NOT_INITIALIZED: *text = "initialization error"; break;
    case CUDA_ERROR_NO_DEVICE: *text = "no CUDA-capable device is detected"; break;
    case CUDA_ERROR_INVALID_DEVICE: *text = "invalid device ordinal"; break;
    case CUDA_ERROR_INVALID_CONTEXT: *text = "invalid device context"; break;
    case CUDA_ERROR_INVALID_HANDLE: *text = "invalid resource handle"; break;
    case CUDA_ERROR_NOT_READY: *text = "device not ready"; break;
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
      *text = "part or all of the requested memory range is already mapped";
      break;
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
      *text = "pointer does not correspond to a registered memory region";
      break;
    case CUDA_ERROR_NOT_SUPPORTED: *text = "operation not supported"; break;
    case CUDA_ERROR_UNKNOWN: *text = "unknown error"; break;
    default: *text = NULL; return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetCount(int *count) {
  ENTER(-1);
  (void)machine;
  *count = num_visible;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(-1);
  (void)machine;
  if (ordinal < 0 || ordinal >= num_visible) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

/* "GPU-51a1a7ed-0000-..." without its prefix and hyphens, as bytes. */
static void uuid_bytes(const char *text, CUuuid *uuid) {
  text += strlen("GPU-");
  for (int position = 0; position < 16; position++) {
    while (*text == '-') text++;
    char pair[3] = {text[0], text[1], '\0'};
    uuid->bytes[position] = (char)strtoul(pair, NULL, 16);
    text += 2;
  }
}

SIM_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(-1);
  if (device < 0 || device >= num_visible) return CUDA_ERROR_INVALID_DEVICE;
  uuid_bytes(machine->gpus[visible_gpus[device]].uuid, uuid);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

SIM_EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  ENTER(-1);
  if (device < 0 || device >= num_visible) return CUDA_ERROR_INVALID_DEVICE;
  const struct sim_preset *preset = &machine->gpus[visible_gpus[device]].preset;
  switch (attribute) {
    case 75: *value = (int)preset->compute_major; break;
    case 76: *value = (int)preset->compute_minor; break;
    case 41: /* unified addressing */
    case 91: /* the device uses the host's pointers to registered memory */
    case 92: /* stream memory operations, as first introduced */
    case 99: /* host memory can be registered */
    case 122: /* 64-bit stream memory operations */ *value = 1; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- contexts: the primary one of each GPU */

SIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(-1);
  if (device < 0 || device >= num_visible) return CUDA_ERROR_INVALID_DEVICE;
  uint32_t gpu = visible_gpus[device];
  sim_lock(machine);
  sim_open_stream(machine, gpu);
  sim_unlock(machine);
  *context = (CUcontext)(uintptr_t)(CUDA_CONTEXT_HANDLE + gpu);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(-1);
  (void)machine;
  return device < 0 || device >= num_visible ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(-1);
  uintptr_t gpu = (uintptr_t)context - CUDA_CONTEXT_HANDLE;
  if (context && gpu >= machine->num_gpus) return CUDA_ERROR_INVALID_CONTEXT;
  current_gpu = context ? (int)gpu : -1;
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER(-1);
  (void)machine;
  *context = current_gpu < 0 ? NULL : (CUcontext)(uintptr_t)(CUDA_CONTEXT_HANDLE + (uint32_t)current_gpu);
  return CUDA_SUCCESS;
}

SIM_EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(-1);
  (void)machine;
  if (current_gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
  for (int ordinal = 0; ordinal < num_visible; ordinal++)
    if (visible_gpus[ordinal] == (uint32_t)current_gpu) *device = ordinal;
  return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- host memory */

int cuda_find_page(uint64_t address, uint64_t size, uint64_t *offset) {
  int page = -1;
  pthread_mutex_lock(&session_mutex);
  for (int index = 0; index < num_registered && page < 0; index++) {
    *offset = address - registered[index].address;
    if (*offset + size <= registered[index].size && *offset < registered[index].size) page = registered[index].page;
  }
  pthread_mutex_unlock(&session_mutex);
  return page;
}

SIM_EXPORT CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned int flags) {
  (void)flags;
  ENTER(current_gpu);
  if (current_gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (!address || size == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t offset;
  if (cuda_find_page((uint64_t)(uintptr_t)address, size, &offset) >= 0)
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  sim_lock(machine);
  int page = sim_register_page(machine, address, size);
  sim_unlock(machine);
  if (page == -ENOENT)
    return CUDA_ERROR_NOT_SUPPORTED; /* real CUDA takes any memory; the simulator only mapped files */
  if (page < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&session_mutex);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (num_registered < SIM_NUM_PAGES) {
    registered[num_registered].address = (uint64_t)(uintptr_t)address;
    registered[num_registered].size = size;
    registered[num_registered++].page = page;
    result = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&session_mutex);
  return result;
}

SIM_EXPORT CUresult cuMemHostRegister(void *address, size_t size, unsigned int flags) {
  return cuMemHostRegister_v2(address, size, flags);
}

SIM_EXPORT CUresult cuMemHostUnregister(void *address) {
  ENTER(current_gpu);
  CUresult result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  int page = -1;
  pthread_mutex_lock(&session_mutex);
  for (int index = 0; index < num_registered; index++)
    if (registered[index].address == (uint64_t)(uintptr_t)address) {
      page = registered[index].page;
      registered[index] = registered[--num_registered];
      result = CUDA_SUCCESS;
      break;
    }
  pthread_mutex_unlock(&session_mutex);
  if (page >= 0) {
    sim_lock(machine);
    sim_unregister_page(machine, (uint32_t)page);
    sim_unlock(machine);
  }
  return result;
}

SIM_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer, void *address, unsigned int flags) {
  (void)flags;
  ENTER(current_gpu);
  (void)machine;
  uint64_t offset;
  if (cuda_find_page((uint64_t)(uintptr_t)address, 1, &offset) < 0) return CUDA_ERROR_INVALID_VALUE;
  *pointer = (CUdeviceptr)(uintptr_t)address;
  return CUDA_SUCCESS;
}
